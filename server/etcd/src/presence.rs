//! Status that a standby publishes in etcd, for operators.

use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp};
use statestore_proto::time::UnixTime;
use tokio::time::Instant;

use crate::client::Etcd;
use crate::error::Failure;
use crate::keys::Keys;
use crate::limits::is_label;
use crate::options::Options;
use crate::wall_clock;

/// Interval at which a standby publishes its status, and the lease after which the status expires.
const PUBLISH_EVERY: Duration = Duration::from_secs(5);
const STATUS_TTL: Duration = Duration::from_secs(15);

/// Status that a standby has published, usually some seconds ago.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandbyStatus {
    /// [Name](crate::Options::name) of the store.
    pub name: String,
    /// [Address](crate::Options::advertise) for its clients when it leads; empty if it has none.
    pub address: String,
    /// Time of publication, by the wall clock of the standby.
    pub reported: UnixTime,
    /// Number of the leader's transactions that the standby had not read at that time.
    pub lag: u64,
}

/// Publishes the status of a standby, attached to a lease.
pub(crate) struct Presence {
    name: String,
    address: String,
    lease: Option<i64>,
    next: Instant,
}

impl Presence {
    pub(crate) fn new(options: &Options) -> Self {
        let (name, address) = (options.name.clone(), options.address.clone());
        Self { name, address, lease: None, next: Instant::now() }
    }

    /// Publishes the status if that is due. An error only causes a retry at the next time, because
    /// no store depends on the status.
    pub(crate) async fn publish(&mut self, etcd: &Etcd, keys: &Keys, lag: u64) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + PUBLISH_EVERY;
        if let Err(failure) = self.try_publish(etcd, keys, lag).await {
            tracing::debug!(%failure, "status of this standby not published");
            self.lease = None;
        }
    }

    async fn try_publish(&mut self, etcd: &Etcd, keys: &Keys, lag: u64) -> Result<(), Failure> {
        let is_there = match self.lease {
            Some(lease) => etcd.renew(lease, etcd.timeout()).await?,
            None => false,
        };
        let lease = match self.lease.filter(|_| is_there) {
            Some(lease) => lease,
            None => etcd.grant(STATUS_TTL).await?.0,
        };
        self.lease = Some(lease);
        let (name, address) = (self.name.clone(), self.address.clone());
        let status = StandbyStatus { name, address, reported: wall_clock::now(), lag };
        let options = PutOptions::new().with_lease(lease);
        let put = TxnOp::put(keys.standby(&self.name), encode(&status), Some(options));
        etcd.txn(Txn::new().and_then([put]), etcd.timeout()).await.map(|_| ())
    }

    /// Removes the status.
    pub(crate) async fn withdraw(self, etcd: Etcd) {
        if let Some(lease) = self.lease {
            let _ = etcd.revoke(lease).await;
        }
    }
}

/// Encodes a status as three lines: time, lag and address.
fn encode(status: &StandbyStatus) -> Vec<u8> {
    format!("{}\n{}\n{}", status.reported.as_millis(), status.lag, status.address).into_bytes()
}

/// Decodes exactly the form of [`encode`]; `None` for other bytes.
pub(crate) fn decode(name: &str, bytes: &[u8]) -> Option<StandbyStatus> {
    let mut lines = core::str::from_utf8(bytes).ok()?.splitn(3, '\n');
    let reported = UnixTime::from_millis(lines.next()?.parse().ok()?);
    let lag = lines.next()?.parse().ok()?;
    let (name, address) = (name.to_owned(), lines.next()?.to_owned());
    let status = StandbyStatus { name, address, reported, lag };
    let is_valid = is_label(&status.name) && is_label(&status.address);
    (is_valid && encode(&status) == bytes).then_some(status)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decoding_returns_the_encoded_status(millis: u64, lag: u64, address in "\\PC{0,60}") {
            let reported = UnixTime::from_millis(millis);
            let status = StandbyStatus { name: "b".to_owned(), address, reported, lag };
            prop_assert_eq!(decode("b", &encode(&status)), Some(status));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            if let Some(status) = decode("b", &bytes) {
                prop_assert_eq!(encode(&status), bytes);
            }
        }
    }
}
