//! Ours over etcd: a store that leads, and one that stands by.

use std::sync::mpsc::{Receiver, sync_channel};

use statestore_etcd::{EtcdJournal, LeasedLink, Options};
use statestore_proto::store::{Durability, Store, StoreConfig};
use statestore_tokio::service::Journal as _;

use super::own::service;
use super::{Failure, Machine};
use crate::aside::Aside;
use crate::race::Lap;
use statestore_benches::stage;

/// What a GET waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// A round trip to etcd, with all that came before it.
    Strict,
    /// Nothing, while the lease holds.
    Leased,
}

/// The store that leads below this prefix, with requests about so many keys and without a wire. It gives the lead back when it is
/// dropped.
///
/// # Errors
/// When it cannot be made.
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

/// A store that stands by, in a thread of its own, until it leads.
#[derive(Debug)]
pub struct Standby {
    told: Receiver<()>,
    _thread: Aside,
}

impl Standby {
    /// Begins to read; it expects so many keys.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(urls: &[String], prefix: &'static str, keys: usize) -> Result<Self, Failure> {
        let mut journal = journal(urls, prefix)?;
        let (tell, told) = sync_channel(2);
        let thread = Aside::spawn(async move |started, end| {
            let _ = started.send(0);
            let leadership = journal.leadership();
            let mut store = Store::new(StoreConfig::new(7).durability(Durability::All));
            let mut is_full = false;
            while let Some(records) = journal.load().await? {
                records.iter().for_each(|record| store.restore(stage::now(), record));
                if !is_full && store.len() == keys {
                    is_full = true;
                    let _ = tell.send(());
                }
            }
            assert_eq!(store.len(), keys, "all keys are there");
            let _ = tell.send(());
            let _ = end.await;
            Ok(leadership.resign().await?)
        })?;
        Ok(Self { told, _thread: thread })
    }

    /// Milliseconds until it has read everything, and then until it leads, from the next time this is called.
    ///
    /// # Errors
    /// When it has ended.
    pub fn wait(&mut self) -> Result<f64, Failure> {
        let lap = Lap::start();
        self.told.recv()?;
        Ok(lap.time().as_secs_f64() * 1e3)
    }
}
