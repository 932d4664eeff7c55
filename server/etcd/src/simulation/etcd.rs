//! Model of etcd: the leader key with its lease, and the chain.

use statestore_proto::store::Record;
use statestore_proto::time::UnixTime;

use crate::chain::Outcome;
use crate::head::Head;

/// A transaction of the chain.
#[derive(Clone, Debug)]
pub(super) struct Txn {
    pub(super) number: u64,
    pub(super) previous: Head,
    pub(super) next: Option<Head>,
    pub(super) records: Vec<Record>,
}

/// Effect of a transaction.
pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) head: Head,
    pub(super) records: Vec<Record>,
}

pub(super) struct Etcd {
    compares: bool,
    pub(super) head: Head,
    /// Effects of all transactions, in order.
    pub(super) log: Vec<Entry>,
    /// Lease of the leader key, and its expiry.
    leader: Option<(i64, u64)>,
    leases: i64,
}

impl Etcd {
    pub(super) fn new(compares: bool) -> Self {
        let head = Head::first(UnixTime::default());
        Self { compares, head, log: Vec::new(), leader: None, leases: 0 }
    }

    pub(super) fn transact(&mut self, at: u64, txn: &Txn) -> Outcome {
        if self.compares && self.head != txn.previous {
            return Outcome::Failed(Some(self.head.clone()));
        }
        if let Some(next) = &txn.next {
            self.head = next.clone();
            self.log.push(Entry { at, head: next.clone(), records: txn.records.clone() });
        }
        Outcome::Succeeded
    }

    /// Creates the leader key with a new lease, if it does not exist.
    pub(super) fn campaign(&mut self, at: u64, lease: u64) -> Option<i64> {
        if self.leader.is_some_and(|(_, until)| at < until) {
            return None;
        }
        self.leases += 1;
        self.leader = Some((self.leases, at + lease));
        Some(self.leases)
    }

    /// Renews the lease; returns `false` if it has expired.
    pub(super) fn renew(&mut self, at: u64, id: i64, lease: u64) -> bool {
        match &mut self.leader {
            Some((holder, until)) if *holder == id && at < *until => {
                *until = at + lease;
                true
            }
            _ => false,
        }
    }
}
