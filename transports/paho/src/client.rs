//! The Paho client of one connection, and how it is taken apart.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use paho_mqtt::{AsyncClient, Error, ServerResponse, Token};
use statestore_tokio::LinkError;

use crate::convert;
use crate::mailbox::Mailbox;
use crate::options::Options;

/// A Paho client that connects once. Fields are dropped in this order.
pub(crate) struct Client {
    /// The attempt to connect; it holds the client too.
    attempt: Token,
    pub(crate) paho: AsyncClient,
    /// Told when the attempt is over, and closed by the drop.
    keeper: Sender<()>,
}

impl Client {
    /// Begins to connect.
    pub(crate) fn new(options: &Options, mailbox: &Arc<Mailbox>) -> Result<Self, LinkError> {
        let paho = AsyncClient::new(options.create()).map_err(|error| match error {
            Error::Failure => LinkError::transient("Paho cannot make a client"),
            error => LinkError::fatal(error),
        })?;
        listen(&paho, mailbox, options.retry_after_takeover);
        let Some(how) = options.connect() else {
            return Err(LinkError::fatal("the user name has a NUL; remove it"));
        };
        let (keeper, told) = mpsc::channel();
        let (attempt, attempted) = mpsc::channel();
        let kept = paho.clone();
        thread::Builder::new()
            .name("statestore-paho".into())
            .stack_size(256 << 10)
            .spawn(move || keep(kept, &attempted, &told))
            .map_err(LinkError::transient)?;
        let token = paho.connect(how);
        let _ = attempt.send(token.clone());
        Ok(Self { attempt: token, paho, keeper })
    }

    /// Waits until it has. May be dropped at any time.
    pub(crate) async fn connected(&mut self) -> Result<ServerResponse, Error> {
        let result = (&mut self.attempt).await;
        let _ = self.keeper.send(());
        result
    }
}

/// Holds on to a client for as long as Paho may call back in its name, and takes it apart then, which can take a second.
/// If Paho's own thread let go of it last, inside of a callback, it would free what it is working on.
fn keep(paho: AsyncClient, attempted: &Receiver<Token>, told: &Receiver<()>) {
    if let Ok(attempt) = attempted.recv() {
        match told.recv() {
            Ok(()) => _ = told.recv(),
            Err(_) => _ = attempt.wait(),
        }
    }
    // This takes Paho's lock, so a callback that is still under way has ended when it returns.
    paho.is_connected();
}

fn listen(paho: &AsyncClient, mailbox: &Arc<Mailbox>, retry_after_takeover: bool) {
    let mailbox = [(); 3].map(|()| Arc::clone(mailbox));
    let [messages, ends, losses] = mailbox;
    paho.set_message_callback(move |_, message| {
        message.into_iter().for_each(|message| messages.deliver(message));
    });
    paho.set_disconnected_callback(move |_, properties, reason| {
        ends.lose(convert::disconnected(reason, &properties, retry_after_takeover));
    });
    paho.set_connection_lost_callback(move |_| {
        losses.lose(LinkError::transient("the connection was closed"));
    });
}
