//! The journal: first a standby, then the writer of the chain.

use std::fmt;

use statestore_proto::store::Record;
use statestore_tokio::JournalError;
use statestore_tokio::service::{Commit, Journal};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::batch::Parts;
use crate::campaign::{self, Won};
use crate::chain::{Chain, Verdict};
use crate::client::Etcd;
use crate::entry::{self, LeaderKey};
use crate::error::{Failure, OptionsError};
use crate::keys::Keys;
use crate::known_head::KnownHead;
use crate::leadership::{HeldLease, Leadership, role_after};
use crate::options::Options;
use crate::response_log::ResponseLog;
use crate::role::{Role, RoleSender, RoleWatch};
use crate::standby::{Goal, Standby, Step};
use crate::transaction::{self, Writes};
use crate::wall_clock;

/// A journal in etcd. See the [crate documentation](crate).
///
/// [`load`](Journal::load) is the standby: it returns records while another store leads, and `None`
/// when this one does. A commit whose future is dropped may still take effect: as a whole, or, if
/// it is larger than an etcd transaction, up to the end of some request. The journal never requests
/// a snapshot, because etcd contains only the last record of each key. Dropping the journal lets
/// the lease expire; see [`Leadership::resign`].
pub struct EtcdJournal {
    options: Options,
    keys: Keys,
    role: RoleSender,
    leadership: Leadership,
    phase: Phase,
}

enum Phase {
    Unopened,
    Standby(Box<Standby>),
    /// This store has won the election, but has not read all earlier records.
    CatchingUp(Box<Standby>, Won),
    Leading(Writer),
    Ended,
}

/// Writes the transactions of a leader.
struct Writer {
    chain: Chain,
    response_log: ResponseLog,
    started: Instant,
}

impl EtcdJournal {
    /// Creates a journal over this etcd. It sends no request before the store loads.
    ///
    /// # Errors
    /// [`OptionsError`] for invalid options.
    pub fn new(options: Options) -> Result<Self, OptionsError> {
        options.check()?;
        let role = RoleSender::new();
        Ok(Self {
            keys: Keys::new(&options.prefix),
            options,
            leadership: Leadership::new(role.clone(), KnownHead::default()),
            role,
            phase: Phase::Unopened,
        })
    }

    /// Creates the journal after one that has ended, for a program that becomes a standby again.
    /// Loading fails if etcd has lost data that the former journal knew, for example because it was
    /// started without its data. A [new](Self::new) journal would treat that as an empty store.
    ///
    /// ```
    /// use statestore_etcd::{EtcdJournal, Options};
    ///
    /// let options = Options::new(["http://127.0.0.1:2379"]);
    /// let first = EtcdJournal::new(options.clone())?;
    /// let leadership = first.leadership();
    /// // A store takes the first, leads and is deposed.
    /// let second = EtcdJournal::after(options, &leadership)?;
    /// # let _ = second;
    /// # Ok::<(), statestore_etcd::OptionsError>(())
    /// ```
    ///
    /// # Errors
    /// [`OptionsError`] for invalid options.
    pub fn after(options: Options, former: &Leadership) -> Result<Self, OptionsError> {
        let mut journal = Self::new(options)?;
        journal.leadership = Leadership::new(journal.role.clone(), former.known().clone());
        Ok(journal)
    }

    /// Returns a watch of the role, which remains valid when a store owns the journal.
    #[must_use]
    pub fn role(&self) -> RoleWatch {
        self.role.watch()
    }

    /// Returns a handle to check and resign the leadership, which remains valid when a store owns
    /// the journal.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Returns the next records, or `None` when all were returned and this journal leads.
    async fn step(&mut self) -> Result<Option<Vec<Record>>, Failure> {
        loop {
            match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Unopened => {
                    let role = self.role.clone();
                    let known = self.leadership.known().clone();
                    let standby = Standby::open(&self.options, &self.keys, role, known).await?;
                    self.phase = Phase::Standby(Box::new(standby));
                }
                Phase::Standby(mut standby) => match standby.next(Goal::NoLeader).await? {
                    Step::Records(records) => {
                        self.phase = Phase::Standby(standby);
                        return Ok(Some(records));
                    }
                    Step::Reached => self.phase = self.campaign(standby).await?,
                },
                Phase::CatchingUp(mut standby, won) => {
                    let left = won.lease.left().unwrap_or_default();
                    let step = standby.next(Goal::Head(won.chain.head()));
                    match tokio::time::timeout(left, step).await {
                        Ok(step) => match step? {
                            Step::Records(records) => {
                                self.phase = Phase::CatchingUp(standby, won);
                                return Ok(Some(records));
                            }
                            Step::Reached => return Ok(Some(self.begin_leading(*standby, won))),
                        },
                        // No transaction has used this lease but the claim.
                        Err(_) => {
                            warn!("leadership resigned: earlier records not read within the lease");
                            let _ = won.lease.revoke(standby.etcd()).await;
                            self.phase = Phase::Standby(standby);
                        }
                    }
                }
                leading @ Phase::Leading(_) => {
                    self.phase = leading;
                    return Ok(None);
                }
                Phase::Ended => return Err(Failure::Lost("the journal has ended".to_owned())),
            }
        }
    }

    async fn campaign(&self, mut standby: Box<Standby>) -> Result<Phase, Failure> {
        let etcd = standby.etcd().clone();
        let known = self.leadership.known();
        match campaign::run(&etcd, &self.keys, &self.options, &self.role, known).await {
            Ok(Some(won)) => return Ok(Phase::CatchingUp(standby, won)),
            Ok(None) => {}
            // An operator may free space.
            Err(failure)
                if failure.is_transient()
                    || matches!(failure, Failure::Lost(_) | Failure::NoSpace) =>
            {
                standby.back_off(&failure).await;
            }
            Err(failure) => return Err(failure),
        }
        // Otherwise it would campaign again before the watch reports the new leader.
        if let Err(failure) = standby.poll().await
            && !failure.is_transient()
        {
            return Err(failure);
        }
        Ok(Phase::Standby(standby))
    }

    /// Begins to lead. All records up to the claim were returned; returns the last one, which
    /// restores the clock.
    fn begin_leading(&mut self, standby: Standby, won: Won) -> Vec<Record> {
        let Won { lease, chain, since } = won;
        let epoch = chain.head().epoch;
        let issued = chain.head().clock.clone().map(|version| Record::Issued { version });
        self.leadership.known().observe(chain.head());
        self.leadership.hold(standby.etcd().clone(), lease);
        let mut response_log = standby.into_response_log();
        response_log.restart();
        self.phase = Phase::Leading(Writer { chain, response_log, started: Instant::now() });
        info!(epoch, prefix = self.options.prefix, "leading");
        self.role.set(Role::Leading { since, epoch });
        // The lease may have been lost before the role was set.
        if let Some(Err(failure)) = self.leadership.held().map(|held| held.lease.left()) {
            self.role.lose(failure.to_string());
        }
        issued.into_iter().collect()
    }

    async fn write(&mut self, records: Vec<Record>) -> Result<(), Failure> {
        let Phase::Leading(writer) = &mut self.phase else {
            return Err(Failure::Lost(
                "a commit is only possible after loading and before the first failure".to_owned(),
            ));
        };
        let _commit_lock = self.leadership.lock_commits().await;
        let Some(held) = self.leadership.held() else {
            return Err(Failure::Lost("resigned".to_owned()));
        };
        let written = writer.commit(&held, &self.keys, records).await;
        self.leadership.known().observe(writer.chain.head());
        written
    }
}

impl Writer {
    async fn commit(
        &mut self,
        held: &HeldLease,
        keys: &Keys,
        records: Vec<Record>,
    ) -> Result<(), Failure> {
        let mut parts = Parts::new(records)?;
        let mut next = parts.next(keys);
        if next.is_none() {
            self.chain.begin_barrier();
            return self.transact(held, keys, &Writes::default()).await;
        }
        while let Some(part) = next {
            let slot = part.responses.as_ref().map(|(bytes, retention)| {
                self.response_log.append(self.started.elapsed(), bytes.len(), *retention)
            });
            self.chain.begin(part.clock.clone(), wall_clock::now());
            self.transact(held, keys, &Writes { part, slot }).await?;
            next = parts.next(keys);
        }
        Ok(())
    }

    async fn transact(
        &mut self,
        held: &HeldLease,
        keys: &Keys,
        writes: &Writes,
    ) -> Result<(), Failure> {
        let HeldLease { etcd, lease } = held;
        match transaction::send(etcd, keys, lease, &mut self.chain, writes).await? {
            Verdict::Done => Ok(()),
            Verdict::Deposed { by } => {
                let leader = leader_name(etcd, keys).await;
                let epoch = by.epoch;
                Err(Failure::Deposed(format!("{leader} leads in epoch {epoch}")))
            }
            Verdict::Again => Err(Failure::Other("transaction without an outcome".to_owned())),
            Verdict::Broken { found } => {
                Err(Failure::went_back(keys, self.chain.head(), found.as_ref()))
            }
        }
    }
}

impl Journal for EtcdJournal {
    async fn load(&mut self) -> Result<Option<Vec<Record>>, JournalError> {
        let step = self.step().await;
        Ok(step.inspect_err(|failure| self.role.set(role_after(failure)))?)
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), JournalError> {
        let written = self.write(commit.records).await;
        if let Err(failure) = &written {
            self.phase = Phase::Ended;
            self.role.set(role_after(failure));
        }
        Ok(written?)
    }
}

impl Drop for EtcdJournal {
    fn drop(&mut self) {
        self.leadership.abandon();
    }
}

impl fmt::Debug for EtcdJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdJournal")
            .field("options", &self.options)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// Returns the name of the leader, for a message.
async fn leader_name(etcd: &Etcd, keys: &Keys) -> String {
    let found = etcd.find(&[keys.leader()]).await.ok();
    let kv = found.and_then(|found| found.entries.into_iter().next().flatten());
    match kv.as_ref().map(entry::decode_leader_key) {
        Some(LeaderKey::Store(leader)) => format!("{:?}", leader.name),
        _ => "another store".to_owned(),
    }
}
