//! Who leads and who stands by, for whoever looks from outside.

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

/// More standbys are not read: there are as many as somebody starts.
const STANDBYS_MAX: i64 = 1_000;

/// What stores over one etcd say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// Who leads, if somebody does.
    pub leader: Option<Leader>,
    /// Greater with each leader; zero before the first.
    pub epoch: u64,
    /// Transactions so far.
    pub sequence: u64,
    /// When the last one was written, by the wall clock of its leader.
    pub written: UnixTime,
    /// Those that stand by, in the order of their names.
    pub standbys: Vec<StandbyStatus>,
    /// What is left of the leader's lease; nothing where nobody leads. A leader that is well renews it each third of
    /// [its time](Options::lease).
    pub lease_left: Duration,
    /// A lease under which something that is no store holds the key of the leader: nobody leads before that is revoked.
    pub foreign_lease: Option<i64>,
    /// The alarms of etcd, each with the member that has raised it, such as `NOSPACE at member 8e9e05c52164694d`.
    pub alarms: Vec<String>,
    /// The endpoints that do not answer.
    pub silent: Vec<String>,
}

/// Why nothing was learnt. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// The options cannot be used, and etcd was not asked.
    #[error("{0}")]
    Options(#[from] OptionsError),
    /// No member of etcd has answered in time. Another try may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// etcd has answered, and another try would not mend it: this user may not read there, no store has written below the
    /// prefix, or something else has.
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
    /// Asks etcd once. Nothing is written.
    ///
    /// ```no_run
    /// # async fn look() -> Result<(), Box<dyn std::error::Error>> {
    /// use statestore_etcd::{Options, Survey};
    ///
    /// let survey = Survey::take(&Options::new(["http://127.0.0.1:2379"])).await?;
    /// match survey.leader {
    ///     Some(leader) => println!("{} leads since {}", leader.name, leader.since.as_millis()),
    ///     None => println!("nobody leads"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SurveyError`] when etcd cannot be asked, when no store has written below the prefix, or when something else has.
    pub async fn take(options: &Options) -> Result<Self, SurveyError> {
        options.check()?;
        Self::read(options).await
    }

    async fn read(options: &Options) -> Result<Self, SurveyError> {
        let keys = Keys::new(&options.prefix);
        let etcd = Etcd::new(options)?;
        // Of several members one may be down.
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
        let (leader, foreign_lease) = match leader.as_ref().map(entry::leader) {
            Some(LeaderKey::Of(leader)) => (Some(leader), None),
            Some(LeaderKey::Foreign(lease)) => (None, Some(lease)),
            Some(LeaderKey::Unleased) | None => (None, None),
        };
        let page = etcd.page(keys.standbys(), STANDBYS_MAX, found.revision).await?;
        let standbys = page.entries.iter().filter_map(|kv| {
            match entry::read(&keys, kv.key(), kv.value()) {
                Ok(Entry::Standby(standby)) => Some(standby),
                // Somebody else's.
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
