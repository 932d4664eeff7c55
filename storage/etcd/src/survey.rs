//! Who leads and who stands by, for whoever looks from outside.

use statestore_proto::time::UnixTime;
use statestore_tokio::JournalError;

use crate::client::Etcd;
use crate::entry::{self, Entry};
use crate::error::Failure;
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
    /// [`JournalError`] when etcd cannot be asked, when no store has written below the prefix, or when something else has.
    pub async fn take(options: &Options) -> Result<Self, JournalError> {
        options.check().map_err(JournalError::new)?;
        Ok(Self::read(options).await?)
    }

    async fn read(options: &Options) -> Result<Self, Failure> {
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
            Failure::Other(format!("no store has written below the prefix {}", keys.prefix()))
        })?;
        let head = Head::decode(head.value()).ok_or_else(|| Failure::damaged(head.key()))?;
        let leader = entries.next().flatten();
        let leader = leader.map(|kv| match entry::read(&keys, kv.key(), kv.value())? {
            Entry::Leader(leader) => Ok(leader),
            _ => Err(Failure::damaged(kv.key())),
        });
        let page = etcd.page(keys.standbys(), STANDBYS_MAX, found.revision).await?;
        let standbys =
            page.entries.iter().map(|kv| match entry::read(&keys, kv.key(), kv.value())? {
                Entry::Standby(standby) => Ok(standby),
                _ => Err(Failure::damaged(kv.key())),
            });
        Ok(Self {
            leader: leader.transpose()?,
            epoch: head.epoch,
            sequence: head.sequence,
            written: head.written,
            standbys: standbys.collect::<Result<_, _>>()?,
        })
    }
}
