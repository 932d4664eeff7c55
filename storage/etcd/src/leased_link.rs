//! A link that is silent while its store may not lead.

use std::time::Duration;

use statestore_proto::transport::Transmit;
use statestore_tokio::{Connected, Link, LinkError, LinkEvent};

use crate::leadership::Leadership;

/// How soon it is seen that the lease holds again.
const LOOKS_AGAIN: Duration = Duration::from_millis(20);

/// A link over which nothing is answered or acknowledged while its [leadership](Leadership::is_held) is not held, and nothing is
/// taken.
///
/// With it a store answers reads from memory, without
/// [waiting for etcd](statestore_proto::store::StoreConfig::linearizable_reads). What may be out of date then is what was looked at
/// while the lease held and is written to the network by a process that stood still in between, or on a machine that was
/// suspended in between, for longer than the margin.
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
    /// Whether something waits for the lease.
    is_refused: bool,
}

impl<L: Link> LeasedLink<L> {
    /// Over this link.
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
        let tells = !matches!(transmit, Transmit::Subscribe { .. });
        if tells && !self.leadership.is_held() {
            self.is_refused = true;
            return Err(transmit);
        }
        self.link.try_send(transmit)
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Self::Message>, LinkError> {
        let messages = messages && self.leadership.is_held();
        let looks_again = self.is_refused;
        tokio::select! {
            event = self.link.next_event(messages) => event,
            () = tokio::time::sleep(LOOKS_AGAIN), if looks_again => {
                self.is_refused = false;
                Ok(LinkEvent::Writable)
            }
        }
    }

    async fn disconnect(&mut self) {
        self.link.disconnect().await;
    }
}
