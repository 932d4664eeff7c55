//! Two clients take turns holding a lock whose lease may end at any moment; writes may be delayed
//! for any time.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Event, Outcome, Request, RequestId};
use statestore_proto::hlc::{FencingToken, Hlc};
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition, Expiry, Reply, Response};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::SmallWorld;
use crate::machines::Server;

const NAMES: [&str; 2] = ["A", "B"];
const LEASE: u64 = 1_000;

#[derive(Debug)]
struct Actor {
    client: Client,
    tries: u8,
    writes: u8,
    taking: Option<RequestId>,
    token: Option<FencingToken>,
}

/// The world. Each value written is the token of its writer, so the store shows whose turn a write
/// belongs to.
#[derive(Debug)]
pub struct Fencing {
    server: Server,
    actors: [Actor; 2],
    now: Now,
    leases: u8,
    fenced: bool,
    written: Option<Hlc>,
}

impl Fencing {
    /// Connects both clients; with `fenced`, writes carry the token.
    ///
    /// # Panics
    /// Never: the client ids are valid.
    #[must_use]
    pub fn new(fenced: bool) -> Self {
        let now = Now::new(Instant::default(), UnixTime::from_millis(1_000_000));
        let mut server = Server::new(&NAMES);
        let actors = [0, 1].map(|link| {
            let config = ClientConfig::new(NAMES[link], [b'0'; 8]);
            let config = config.timeout(Duration::from_secs(3_600));
            let mut client = Client::new(config).expect("a plain name");
            server.connect(link);
            client.handle(now, Input::Connected { session_present: false });
            server.collect(link, &mut client);
            while server.step_up(now, link) || server.step_down(now, link, &mut client) {}
            while client.poll_event().is_some() {}
            Actor {
                client,
                tries: 2 - u8::from(link == 0),
                writes: 2 - u8::from(link == 1),
                taking: None,
                token: None,
            }
        });
        Self { server, actors, now, leases: 1, fenced, written: None }
    }

    fn submit(&mut self, link: usize, request: Request) -> Result<RequestId, String> {
        let actor = &mut self.actors[link];
        let id = actor.client.submit(self.now, request).map_err(|error| error.to_string())?;
        self.server.collect(link, &mut actor.client);
        Ok(id)
    }

    fn take(&mut self, link: usize) -> Result<(), String> {
        let (key, value) =
            (Bytes::from_static(b"lock"), Bytes::from_static(NAMES[link].as_bytes()));
        let condition = Condition::IfAbsentOrEqual;
        let set = Command::Set { key, value, condition, expiry: Expiry::from_millis(LEASE) };
        let id = self.submit(link, Request::new(set))?;
        self.actors[link].tries -= 1;
        self.actors[link].taking = Some(id);
        Ok(())
    }

    fn write(&mut self, link: usize) -> Result<(), String> {
        let token = self.actors[link].token.clone().ok_or("no token")?;
        let (key, value) = (Bytes::from_static(b"data"), token.to_string().into());
        let set = Command::Set { key, value, condition: Condition::Always, expiry: None };
        let request = Request::new(set);
        let request = if self.fenced { request.with_fencing_token(token) } else { request };
        self.actors[link].writes -= 1;
        self.submit(link, request).map(drop)
    }

    fn arrive(&mut self, link: usize) -> Result<(), String> {
        self.server.step_up(self.now, link);
        let Some(stored) = self.server.store().get(self.now, b"data") else { return Ok(()) };
        let turn = std::str::from_utf8(stored.value).map_err(|error| error.to_string())?;
        let turn: Hlc = turn.parse().map_err(|error| format!("{error}"))?;
        match self.written.replace(turn.clone()) {
            Some(before) if before > turn => {
                Err(format!("a write of the turn {turn} came after one of the turn {before}"))
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self, link: usize) {
        let actor = &mut self.actors[link];
        self.server.step_down(self.now, link, &mut actor.client);
        while let Some(event) = actor.client.poll_event() {
            let Event::Completed { id, outcome } = event else { continue };
            if actor.taking != Some(id) {
                continue;
            }
            actor.taking = None;
            if let Outcome::Responded {
                response: Response::Reply(Reply::Done),
                version: Some(version),
                ..
            } = outcome
            {
                actor.token = Some(version.to_fencing_token());
            }
        }
    }
}

const TAKES: [&str; 2] = ["A takes the lock", "B takes the lock"];
const WRITES: [&str; 2] = ["A writes", "B writes"];
const ARRIVES: [&str; 2] = ["A's request arrives", "B's request arrives"];
const RECEIVES: [&str; 2] = ["A receives a reply", "B receives a reply"];
const LEASE_ENDS: &str = "a lease ends";

impl SmallWorld for Fencing {
    fn choices(&self) -> Vec<&'static str> {
        let mut choices = Vec::new();
        for (link, actor) in self.actors.iter().enumerate() {
            let (up, down) = self.server.in_flight(link);
            // A holder that acquires the lock again after its lease would be a new holder.
            let options = [
                (actor.tries > 0 && actor.taking.is_none() && actor.token.is_none(), TAKES),
                (actor.writes > 0 && actor.token.is_some(), WRITES),
                (up > 0, ARRIVES),
                (down > 0, RECEIVES),
            ];
            choices.extend(options.iter().filter(|(can, _)| *can).map(|(_, names)| names[link]));
        }
        if self.leases > 0 {
            choices.push(LEASE_ENDS);
        }
        choices
    }

    fn choose(&mut self, choice: &'static str) -> Result<(), String> {
        if choice == LEASE_ENDS {
            self.leases -= 1;
            let passed = |millis: u64| millis + LEASE;
            self.now = Now::new(
                Instant::from_millis(passed(self.now.instant.as_millis())),
                UnixTime::from_millis(passed(self.now.unix.as_millis())),
            );
            return Ok(());
        }
        for link in [0, 1] {
            match choice {
                _ if choice == TAKES[link] => return self.take(link),
                _ if choice == WRITES[link] => return self.write(link),
                _ if choice == ARRIVES[link] => return self.arrive(link),
                _ if choice == RECEIVES[link] => self.receive(link),
                _ => {}
            }
        }
        Ok(())
    }

    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        write!(out, "{self:?}")
    }
}
