//! Survey of all stores below a prefix, for operators.

use std::time::Duration;

use etcd_client::KeyValue;
use statestore_proto::time::UnixTime;

use crate::client::Etcd;
use crate::entry::{self, Entry, LeaderKey};
use crate::error::{Failure, OptionsError};
use crate::head::Head;
use crate::keys::Keys;
use crate::options::Options;
use crate::presence::StandbyStatus;
use crate::role::Leader;

/// Maximum number of standbys that are read.
const STANDBYS_MAX: i64 = 1_000;

/// State of the stores below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// Leader; `None` if no store leads.
    pub leader: Option<Leader>,
    /// Number of the term, which increases with each leader; zero before the first.
    pub epoch: u64,
    /// Number of transactions so far.
    pub sequence: u64,
    /// Time of the last transaction, by the wall clock of its leader.
    pub written: UnixTime,
    /// Standbys, sorted by name; at most 1,000.
    pub standbys: Vec<StandbyStatus>,
    /// Remaining time of the leader's lease; zero if no store leads. A healthy leader renews it
    /// after a third of [its usable time](Options::lease).
    pub lease_left: Duration,
    /// Lease of a leader key that another program has written. No store leads before that lease is
    /// revoked.
    pub foreign_lease: Option<i64>,
    /// Alarms of etcd, each with the member that has raised it, such as
    /// `NOSPACE at member 8e9e05c52164694d`.
    pub alarms: Vec<String>,
    /// Endpoints that do not respond.
    pub silent: Vec<String>,
}

/// Reason why a survey failed. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// The options are invalid. No request was sent to etcd.
    #[error("{0}")]
    Options(#[from] OptionsError),
    /// No member of etcd has responded in time. Another attempt may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// etcd has responded, and another attempt would fail too: this user has no permission, no
    /// store has written below the prefix, or another program has.
    #[error("{0}")]
    Refused(String),
}

impl From<Failure> for SurveyError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Options(error) => Self::Options(error),
            failure if failure.is_transient() => Self::Unreachable(failure.to_string()),
            failure => Self::Refused(failure.to_string()),
        }
    }
}

impl Survey {
    /// Reads the state from etcd once. Writes nothing.
    ///
    /// ```no_run
    /// # async fn look() -> Result<(), Box<dyn std::error::Error>> {
    /// use statestore_etcd::{Options, Survey};
    ///
    /// let survey = Survey::fetch(&Options::new(["http://127.0.0.1:2379"])).await?;
    /// match survey.leader {
    ///     Some(leader) => println!("{} leads since {}", leader.name, leader.since.as_millis()),
    ///     None => println!("no store leads"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SurveyError`] if etcd cannot be reached or rejects the user, or if no store or another
    /// program has written below the prefix.
    pub async fn fetch(options: &Options) -> Result<Self, SurveyError> {
        options.check()?;
        Self::read(options).await
    }

    async fn read(options: &Options) -> Result<Self, SurveyError> {
        let keys = Keys::new(&options.prefix);
        let etcd = Etcd::new(options)?;
        // Each member gets one attempt.
        let mut found = etcd.find(&[keys.head(), keys.leader()]).await;
        for _ in 1..etcd.members() {
            if found.as_ref().err().is_none_or(|failure| !failure.is_transient()) {
                break;
            }
            found = etcd.find(&[keys.head(), keys.leader()]).await;
        }
        let found = found?;
        let mut entries = found.entries.into_iter();
        let head = entries.next().flatten();
        let head = head.ok_or_else(|| {
            let prefix = keys.prefix();
            SurveyError::Refused(format!("no store has written below the prefix {prefix}"))
        })?;
        let head = Head::decode(head.value()).ok_or_else(|| Failure::damaged(head.key()))?;
        let leader = entries.next().flatten();
        let lease_left = match leader.as_ref().map(KeyValue::lease) {
            Some(lease) if lease != 0 => etcd.lease_left(lease).await.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let (leader, foreign_lease) = match leader.as_ref().map(entry::decode_leader_key) {
            Some(LeaderKey::Store(leader)) => (Some(leader), None),
            Some(LeaderKey::Foreign(lease)) => (None, Some(lease)),
            Some(LeaderKey::Unleased) | None => (None, None),
        };
        let page = etcd.page(keys.standbys(), STANDBYS_MAX, found.revision).await?;
        let standbys = page.entries.iter().filter_map(|kv| {
            match entry::decode(&keys, kv.key(), kv.value()) {
                Ok(Entry::Standby(standby)) => Some(standby),
                // A key that no store has written.
                _ => None,
            }
        });
        let (alarms, silent) = etcd.health().await;
        Ok(Self {
            leader,
            epoch: head.epoch,
            sequence: head.sequence,
            written: head.written,
            standbys: standbys.collect(),
            lease_left,
            foreign_lease,
            alarms,
            silent,
        })
    }
}
