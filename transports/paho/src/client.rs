//! The Paho client of one connection, and how it is taken apart.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{mem, thread};

use paho_mqtt::{AsyncClient, CreateOptionsBuilder, Error, ServerResponse, Token};
use statestore_tokio::{Address, LinkError, Options};
use tracing::warn;

use crate::convert;
use crate::mailbox::Mailbox;
use crate::options;

/// A Paho client that connects once. Fields are dropped in this order.
pub(crate) struct Client {
    /// The attempt to connect; it holds the client too.
    attempt: Token,
    pub(crate) paho: AsyncClient,
    keeper: Keeper,
}

impl Client {
    /// Begins to connect to this address.
    pub(crate) fn new(
        options: &Options,
        at: &Address,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Self, LinkError> {
        hold_library();
        let paho = AsyncClient::new(options::create(options, at)).map_err(|error| match error {
            Error::Failure => LinkError::transient("Paho cannot make a client"),
            error => LinkError::fatal(error),
        })?;
        let how = options::connect(options)?;
        let (orders, taken) = mpsc::channel();
        let keeper = Keeper(orders);
        listen(&paho, mailbox, options.retry_after_takeover, keeper.0.clone());
        let (kept, filled) = (paho.clone(), Arc::clone(mailbox));
        thread::Builder::new()
            .name("statestore-paho".into())
            .stack_size(256 << 10)
            .spawn(move || keep(kept, &filled, &taken))
            .map_err(LinkError::transient)?;
        let attempt = paho.connect(how);
        let _ = keeper.0.send(Order::Await(attempt.clone()));
        Ok(Self { attempt, paho, keeper })
    }

    /// Not to be taken apart if one of these could not be written.
    pub(crate) fn check(&self, publishes: Vec<Token>) {
        let _ = self.keeper.0.send(Order::Check(publishes));
    }

    /// Not to be taken apart: one could not be written.
    pub(crate) fn spoil(&self) {
        let _ = self.keeper.0.send(Order::Spoil);
    }

    /// Waits until it has. May be dropped at any time.
    pub(crate) async fn connected(&mut self) -> Result<ServerResponse, Error> {
        let result = (&mut self.attempt).await;
        let _ = self.keeper.0.send(Order::Awaited);
        result
    }
}

/// Makes a client that is never used and never taken apart. Paho's library takes itself down with its last client, and if
/// two are the last at a time it frees everything twice.
fn hold_library() {
    static HELD: OnceLock<Option<AsyncClient>> = OnceLock::new();
    HELD.get_or_init(|| {
        let create = CreateOptionsBuilder::new().server_uri("mqtt://localhost").persistence(None);
        AsyncClient::new(create.finalize()).ok()
    });
}

/// How long the goodbye of a client may take that leaves of its own accord.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// What the thread of a client is to do.
enum Order {
    /// Not to end before this attempt to connect has.
    Await(Token),
    /// It has.
    Awaited,
    /// To say goodbye, as Paho's own thread cannot.
    Leave,
    /// Never to take the client apart if one of these failed.
    Check(Vec<Token>),
    /// Never to do so at all.
    Spoil,
    /// To end.
    End,
}

/// Ends the thread of a client.
struct Keeper(Sender<Order>);

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.send(Order::End);
    }
}

/// Holds on to a client for as long as Paho may call back in its name, and takes it apart then, which can take a second.
/// If Paho's own thread let go of it last, inside of a callback, it would free what it is working on.
fn keep(paho: AsyncClient, mailbox: &Mailbox, orders: &Receiver<Order>) {
    let (mut attempt, mut publishes, mut is_spoilt) = (None, Vec::new(), false);
    while let Ok(order) = orders.recv() {
        match order {
            Order::Await(token) => attempt = Some(token),
            Order::Awaited => attempt = None,
            // The rest of what was acknowledged arrives until it is done.
            Order::Leave => {
                let _ = paho.disconnect(None).wait_for(LEAVE_MAX);
                mailbox.lose(LinkError::transient("the inbox is full; the broker keeps the rest"));
            }
            Order::Check(tokens) => publishes = tokens,
            Order::Spoil => is_spoilt = true,
            Order::End => break,
        }
    }
    if let Some(attempt) = attempt {
        let _ = attempt.wait();
    }
    // This takes Paho's lock, so a callback that is still under way has ended when it returns. When it says no, nothing
    // more is written.
    if paho.is_connected() {
        let _ = paho.disconnect(None).wait_for(LEAVE_MAX);
        paho.is_connected();
    }
    let mut results = publishes.into_iter().filter_map(|mut token| token.try_wait());
    if is_spoilt || results.any(|result| convert::is_poison(&result)) {
        warn!(
            "a client is left in memory, with what it had in flight: to free it would crash Paho"
        );
        mem::forget(paho);
    }
}

fn listen(
    paho: &AsyncClient,
    mailbox: &Arc<Mailbox>,
    retry_after_takeover: bool,
    orders: Sender<Order>,
) {
    let [messages, ends, losses] = [(); 3].map(|()| Arc::clone(mailbox));
    paho.set_message_callback(move |_, message| {
        if message.is_some_and(|message| messages.deliver(message)) {
            let _ = orders.send(Order::Leave);
        }
    });
    paho.set_disconnected_callback(move |_, properties, reason| {
        ends.lose(convert::disconnected(reason, &properties, retry_after_takeover));
    });
    paho.set_connection_lost_callback(move |_| {
        losses.lose(LinkError::transient("the connection was closed"));
    });
}
