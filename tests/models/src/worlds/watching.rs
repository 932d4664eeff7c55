//! A client watches a key while its connection is lost and restored and another client writes.

use std::fmt::Write;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Event, WatchId};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::SmallWorld;
use crate::machines::{Server, WatchLog};

const KEY: &[u8] = b"k";

/// The world. Time stands still, so no time-out hides a fault in the messages.
#[derive(Debug)]
pub struct Watching {
    server: Server,
    client: Client,
    log: WatchLog,
    watch: Option<WatchId>,
    losses: u8,
    writes: Vec<Option<&'static [u8]>>,
}

impl Watching {
    /// An offline client, a store, and this many lost connections. With `forgetful` the store does
    /// not receive the KEYNOTIFY of later connections.
    ///
    /// Never: the client id is valid.
    /// Never: the name is plain.
    #[must_use]
    pub fn new(losses: u8, forgetful: bool) -> Self {
        let config = ClientConfig::new("watcher", [b'0'; 8]);
        let mut server = Server::new(&["watcher"]);
        server.forgets_registrations = forgetful;
        let writes = vec![Some(b"3".as_slice()), None, Some(b"1".as_slice())];
        Self {
            server,
            client: Client::new(config).expect("a plain name"),
            log: WatchLog::default(),
            watch: None,
            losses,
            writes,
        }
    }

    fn now() -> Now {
        Now::new(Instant::from_millis(1), UnixTime::from_millis(1_000_000))
    }

    fn write(&mut self) {
        let command = match self.writes.pop() {
            None => return,
            Some(None) => Command::Del { key: KEY },
            Some(Some(value)) => {
                Command::Set { key: KEY, value, condition: Condition::Always, expiry: None }
            }
        };
        self.server.write(Self::now(), &command);
    }

    fn lose(&mut self) -> Result<(), String> {
        self.losses -= 1;
        let before = self.watch.map(|id| self.log.state(id)).unwrap_or_default();
        self.server.disconnect(0);
        self.client.handle(Self::now(), Input::Disconnected);
        self.drain();
        let after = self.watch.map(|id| self.log.state(id)).unwrap_or_default();
        let flagged = !after.live && after.gaps == before.gaps + usize::from(before.live);
        if flagged {
            Ok(())
        } else {
            Err(format!("no gap was reported: {before:?}, then {after:?}"))
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.client.poll_event() {
            if let Event::Watch { id, event } = event {
                self.log.take(id, &event, true);
            }
        }
        self.server.collect(0, &mut self.client);
    }

    /// Checks that at rest the application knows the store's state.
    fn check(&self) -> Result<(), String> {
        let Some(watch) = self.watch else { return Ok(()) };
        let at_rest = self.server.is_connected(0) && self.server.in_flight(0) == (0, 0);
        if !at_rest {
            return Ok(());
        }
        let state = self.log.state(watch);
        let stored = self.server.store().get(Self::now(), KEY);
        let same =
            state.live && state.value.as_deref() == stored.as_ref().map(|stored| stored.value);
        if same { Ok(()) } else { Err(format!("{state:?}, but the store has {stored:?}")) }
    }
}

const OBSERVE: &str = "watch";
const CONNECT: &str = "connect";
const LOSE: &str = "the connection is lost";
const WRITE: &str = "another client writes";
const UP: &str = "a packet arrives";
const DOWN: &str = "a packet comes back";

impl SmallWorld for Watching {
    fn choices(&self) -> Vec<&'static str> {
        let connected = self.server.is_connected(0);
        let (up, down) = self.server.in_flight(0);
        let options = [
            (self.watch.is_none(), OBSERVE),
            (!connected, CONNECT),
            (connected && self.losses > 0, LOSE),
            (!self.writes.is_empty(), WRITE),
            (up > 0, UP),
            (down > 0, DOWN),
        ];
        options.into_iter().filter(|(can, _)| *can).map(|(_, name)| name).collect()
    }

    fn choose(&mut self, choice: &'static str) -> Result<(), String> {
        let now = Self::now();
        match choice {
            OBSERVE => {
                let key = Bytes::from_static(KEY);
                let watch = self.client.watch(now, key).map_err(|error| error.to_string())?;
                self.watch = Some(watch);
            }
            CONNECT => {
                self.server.connect(0);
                self.client.handle(now, Input::Connected { session_present: false });
            }
            LOSE => self.lose()?,
            WRITE => self.write(),
            UP => _ = self.server.step_up(now, 0),
            _ => _ = self.server.step_down(now, 0, &mut self.client),
        }
        self.drain();
        self.check()
    }

    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        write!(out, "{self:?}")
    }
}
