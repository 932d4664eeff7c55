//! The Paho client of one connection, and how it is freed.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{mem, thread};

use paho_mqtt::{AsyncClient, CreateOptionsBuilder, Error, ServerResponse, Token};
use statestore_tokio::adapter::{Delivered, Mailbox, Opening};
use statestore_tokio::{LinkError, LinkErrorKind};
use tracing::warn;

use crate::convert::{self, Message};
use crate::options;

/// Maximum duration of a DISCONNECT that this package sends without a request of the link.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// A Paho client that connects once. Fields are dropped in this order.
pub(crate) struct Client {
    pub(crate) paho: AsyncClient,
    pub(crate) release: Release,
}

/// Lets the thread of a client free the client.
pub(crate) struct Release {
    orders: Sender<Order>,
    pub(crate) in_use: InUse,
}

/// State that decides whether and when a client can be freed. Tokens refer to the client too.
#[derive(Default)]
pub(crate) struct InUse {
    /// The attempt to connect, while it lasts.
    attempt: Option<Token>,
    /// If one of these could not be written, the client must not be freed.
    pub(crate) publishes: Vec<Token>,
    /// A publish could not be written.
    pub(crate) is_poisoned: bool,
}

/// An order for the thread of a client.
enum Order {
    /// Send a DISCONNECT, because a callback of Paho cannot.
    Leave,
    /// Free the client, and end.
    Free(InUse),
}

impl Client {
    /// Connects, and returns the CONNACK too. May be dropped at any await.
    pub(crate) async fn connect(
        opening: Opening<'_>,
        mailbox: &Arc<Mailbox<Message>>,
    ) -> Result<(Self, ServerResponse), LinkError> {
        keep_library();
        let create = options::create(opening.options, opening.address);
        let paho = AsyncClient::new(create).map_err(|error| match error {
            Error::Failure => LinkError::transient("Paho could not create a client"),
            error => LinkError::from_source(LinkErrorKind::Unsupported, error),
        })?;
        let connect = options::connect(opening.options)?;
        let (orders, received) = mpsc::channel();
        listen(&paho, mailbox, orders.clone());
        let (owned, filled) = (paho.clone(), Arc::clone(mailbox));
        thread::Builder::new()
            .name("statestore-paho".into())
            .stack_size(256 << 10)
            .spawn(move || run(owned, &filled, &received))
            .map_err(LinkError::transient)?;
        let mut client = Self { paho, release: Release { orders, in_use: InUse::default() } };
        let attempt = &mut client.release.in_use.attempt;
        let result = attempt.insert(client.paho.connect(connect)).await;
        *attempt = None;
        Ok((client, result.map_err(convert::refused)?))
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Free(mem::take(&mut self.in_use)));
    }
}

/// Creates a client that is never used and never freed. Paho's library shuts down with its last
/// client, and frees memory twice if the last two clients are freed at the same time.
fn keep_library() {
    static UNUSED: OnceLock<Option<AsyncClient>> = OnceLock::new();
    UNUSED.get_or_init(|| {
        let create = CreateOptionsBuilder::new().server_uri("mqtt://localhost").persistence(None);
        AsyncClient::new(create.finalize()).ok()
    });
}

/// The thread of a client. It owns the client while Paho may call back, and then frees it, which
/// can take a second. If a callback of Paho released the client last, it would free memory in use.
fn run(paho: AsyncClient, mailbox: &Mailbox<Message>, orders: &Receiver<Order>) {
    let leave = || paho.disconnect(None).wait_for(LEAVE_MAX);
    let in_use = loop {
        let Ok(order) = orders.recv() else { return };
        match order {
            // Messages that Paho has acknowledged still arrive until this is done.
            Order::Leave => {
                let _ = leave();
                let text = "the inbox is full; the broker queues further messages";
                mailbox.fail(LinkError::new(LinkErrorKind::Overloaded, text));
            }
            Order::Free(in_use) => break in_use,
        }
    };
    if let Some(attempt) = in_use.attempt {
        let _ = attempt.wait();
    }
    // This takes Paho's lock, so a running callback has ended when it returns. If it returns false,
    // nothing else is written.
    if paho.is_connected() {
        let _ = leave();
        paho.is_connected();
    }
    let mut results = in_use.publishes.into_iter().filter_map(|mut token| token.try_wait());
    if in_use.is_poisoned || results.any(|result| convert::is_poison(&result)) {
        warn!("a client and its packets stay in memory: freeing it would crash Paho");
        mem::forget(paho);
    }
}

fn listen(paho: &AsyncClient, mailbox: &Arc<Mailbox<Message>>, orders: Sender<Order>) {
    let [messages, ends, losses] = [(); 3].map(|()| Arc::clone(mailbox));
    let mut is_leaving = false;
    paho.set_message_callback(move |_, message| {
        let Some(message) = message.map(Message::new) else { return };
        let (bytes, qos) = (message.size(), message.qos());
        // Paho has acknowledged the message, and cannot stop reading.
        let is_beyond = messages.deliver(message, bytes, qos, None, false) == Delivered::Beyond;
        if is_beyond && !mem::replace(&mut is_leaving, true) {
            let _ = orders.send(Order::Leave);
        }
    });
    paho.set_disconnected_callback(move |_, properties, reason| {
        ends.fail(convert::disconnected(reason, &properties));
    });
    paho.set_connection_lost_callback(move |_| {
        losses.fail(LinkError::new(LinkErrorKind::Lost, "the connection was closed"));
    });
}
