//! Statistics of a store at the time of a response.

use std::sync::{Arc, Mutex, OnceLock};

use statestore_loopback::{Hub, HubLink, Message};
use statestore_proto::transport::Transmit;
use statestore_tokio::service::StatsHandle;
use statestore_tokio::{Connected, Link, LinkError, LinkEvent};

use crate::{client, service};

/// A link that reads the statistics of its store whenever a response is sent.
struct Observed {
    link: HubLink,
    stats: Arc<OnceLock<StatsHandle>>,
    keys: Arc<Mutex<Vec<usize>>>,
}

impl Link for Observed {
    type Message = Message;

    fn client_id(&self) -> &str {
        self.link.client_id()
    }

    async fn connect(&mut self) -> Result<Connected, LinkError> {
        self.link.connect().await
    }

    fn try_send(&mut self, transmit: Transmit) -> Result<(), Transmit> {
        if let Transmit::Publish(publish) = &transmit
            && publish.answers().is_some()
            && let Some(stats) = self.stats.get()
        {
            self.keys.lock().expect("no panic").push(stats.current().keys);
        }
        self.link.try_send(transmit)
    }

    async fn next_event(&mut self, messages: bool) -> Result<LinkEvent<Message>, LinkError> {
        self.link.next_event(messages).await
    }

    async fn disconnect(&mut self) {
        self.link.disconnect().await;
    }
}

#[tokio::test(start_paused = true)]
async fn statistics_contain_the_effect_of_each_response() {
    const REQUESTS: usize = 20;
    let broker = Hub::new();
    let (stats, keys) = (Arc::default(), Arc::default());
    let link = Observed {
        link: broker.store_link("statestore"),
        stats: Arc::clone(&stats),
        keys: Arc::clone(&keys),
    };
    let service = service(link).await;
    assert!(stats.set(service.stats_handle()).is_ok());
    let store = client(broker.link("c")).await;
    // All requests are sent at once, so that the store handles many of them in one turn.
    let calls: Vec<_> =
        (0..REQUESTS).map(|n| tokio::spawn(store.set(n.to_string(), "v").into_future())).collect();
    for call in calls {
        call.await.expect("no panic").expect("a version");
    }
    let keys = std::mem::take(&mut *keys.lock().expect("no panic"));
    assert_eq!(keys.len(), REQUESTS);
    assert!(keys.iter().enumerate().all(|(earlier, keys)| *keys > earlier), "{keys:?}");
}
