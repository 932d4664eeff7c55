//! A link that sends nothing while the leadership is not held.

use std::time::Duration;

use statestore_proto::transport::Transmit;
use statestore_tokio::{Connected, Link, LinkError, LinkEvent};

use crate::leadership::Leadership;

/// Interval of checks whether the lease is held again.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// A link that sends no response, notification or acknowledgement and receives no request while its
/// [leadership](Leadership::is_held) is not held.
///
/// With it a store can respond to reads from memory, without
/// [waiting for etcd](statestore_proto::store::StoreConfig::linearizable_reads). Such a response
/// can be stale only if the process is stopped, or its machine suspended, for longer than the
/// margin of the lease between the check and the write to the network.
///
/// ```no_run
/// use statestore_etcd::{EtcdJournal, LeasedLink, Options};
/// use statestore_tokio::{Link, StoreService};
///
/// fn serve(link: impl Link) -> Result<StoreService, Box<dyn std::error::Error>> {
///     let journal = EtcdJournal::new(Options::new(["http://127.0.0.1:2379"]))?;
///     let link = LeasedLink::new(link, journal.leadership());
///     Ok(StoreService::builder().journal(journal).spawn(link))
/// }
/// ```
#[derive(Debug)]
pub struct LeasedLink<L> {
    link: L,
    leadership: Leadership,
    /// A packet waits for the lease.
    is_refused: bool,
}

impl<L: Link> LeasedLink<L> {
    /// Wraps a link.
    pub const fn new(link: L, leadership: Leadership) -> Self {
        Self { link, leadership, is_refused: false }
    }
}

impl<L: Link> Link for LeasedLink<L> {
    type Message = L::Message;

    fn client_id(&self) -> &str {
        self.link.client_id()
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.link.connect().await
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        let needs_lease = !matches!(transmit, Transmit::Subscribe { .. });
        if needs_lease && !self.leadership.is_held() {
            self.is_refused = true;
            return Err(transmit);
        }
        self.link.try_send(transmit)
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Self::Message>, LinkError> {
        let messages = messages && self.leadership.is_held();
        let is_refused = self.is_refused;
        tokio::select! {
            event = self.link.next_event(messages) => event,
            () = tokio::time::sleep(CHECK_EVERY), if is_refused => {
                self.is_refused = false;
                Ok(LinkEvent::Writable)
            }
        }
    }

    async fn disconnect(&mut self) {
        self.link.disconnect().await;
    }
}
