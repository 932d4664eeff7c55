//! Our store over etcd: a leader and a standby.

use std::sync::mpsc::{Receiver, sync_channel};

use statestore_etcd::{EtcdJournal, LeasedLink, Options};
use statestore_proto::store::{Durability, Store, StoreConfig};
use statestore_tokio::service::Journal as _;

use super::statestore::service;
use super::{Failure, Machine};
use crate::race::Lap;
use crate::server_thread::ServerThread;
use statestore_benches::stage;

/// Consistency of a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Linearizable: each GET waits for a transaction in etcd.
    Strict,
    /// Without a transaction, while the lease is valid.
    Leased,
}

/// Starts a store that leads below a prefix, without a network. `keys` is the number of keys that
/// requests use. The store resigns when it is dropped.
///
/// # Errors
/// If the store cannot be created.
pub fn leader(
    urls: &[String],
    prefix: &'static str,
    read: Read,
    keys: usize,
) -> Result<Machine, Failure> {
    let journal = journal(urls, prefix)?;
    Machine::over(keys, async move |link| {
        let leadership = journal.leadership();
        let config = StoreConfig::new(7).durability(Durability::All);
        let service = match read {
            Read::Strict => service(journal, config.linearizable_reads(true))?.spawn(link),
            Read::Leased => {
                let link = LeasedLink::new(link, leadership.clone());
                service(journal, config)?.spawn(link)
            }
        };
        Ok((service, async move || {
            if let Err(error) = leadership.resign().await {
                eprintln!("standbys: {error}");
            }
        }))
    })
}

fn journal(urls: &[String], prefix: &str) -> Result<EtcdJournal, Failure> {
    Ok(EtcdJournal::new(Options::new(urls).prefix(prefix).name("bench"))?)
}

/// A standby in a separate thread, until it is the leader.
#[derive(Debug)]
pub struct Standby {
    steps: Receiver<()>,
    _thread: ServerThread,
}

impl Standby {
    /// Starts a standby, which expects this number of keys.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(urls: &[String], prefix: &'static str, keys: usize) -> Result<Self, Failure> {
        let mut journal = journal(urls, prefix)?;
        let (sender, steps) = sync_channel(2);
        let thread = ServerThread::spawn(async move |started, end| {
            let _ = started.send(0);
            let leadership = journal.leadership();
            let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
            let mut is_full = false;
            while let Some(records) = journal.load().await? {
                records.iter().for_each(|record| store.restore(stage::now(), record));
                if !is_full && store.len() == keys {
                    is_full = true;
                    let _ = sender.send(());
                }
            }
            assert_eq!(store.len(), keys, "all keys are there");
            let _ = sender.send(());
            let _ = end.await;
            Ok(leadership.resign().await?)
        })?;
        Ok(Self { steps, _thread: thread })
    }

    /// Returns the milliseconds of this call. The first call waits until the standby has read all
    /// keys, the second one until it leads.
    ///
    /// # Errors
    /// If the standby has ended.
    pub fn wait(&mut self) -> Result<f64, Failure> {
        let lap = Lap::start();
        self.steps.recv()?;
        Ok(lap.time().as_secs_f64() * 1e3)
    }
}
