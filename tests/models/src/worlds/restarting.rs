//! A client watches a key while another client writes it and the store restarts empty without
//! notice.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Client, ClientConfig, Event, WatchEvent, WatchId};
use statestore_proto::hlc::Version;
use statestore_proto::machine::{Input, Machine as _};
use statestore_proto::message::{Command, Condition};
use statestore_proto::time::{Instant, Now, UnixTime};

use super::SmallWorld;
use crate::machines::{Server, WatchLog};

const KEY: &[u8] = b"k";

const EPOCH: u64 = 1_000_000;

/// Clock advance of the first store.
const AHEAD: u64 = 50_000;

/// Renewal interval, and time-out of a request.
const INTERVAL: Duration = Duration::from_secs(1);

/// The incarnation that stores report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incarnations {
    /// A different one for each store.
    Distinct,
    /// None.
    Nothing,
    /// Always the same: the client behaves as if it ignored incarnations.
    Constant,
}

/// The initial state.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The incarnation that stores report.
    pub incarnations: Incarnations,
    /// The client renews its registration.
    pub renews: bool,
    /// The key has a value.
    pub present: bool,
    /// The clock of the first store is ahead, so that later stores issue lower versions.
    pub ahead: bool,
    /// Number of restarts.
    pub restarts: u8,
    /// Advances of time before the faults end.
    pub ticks: u8,
}

/// A change of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Set(Version),
    Deleted(Version),
    /// The store that held the value has been replaced.
    Vanished,
}

/// The world, starting with a live watch.
#[derive(Debug)]
pub struct Restarting {
    incarnations: Incarnations,
    server: Server,
    client: Client,
    now: u64,
    ahead: bool,
    restarts: u8,
    made: u8,
    ticks: u8,
    writes: Vec<Option<&'static [u8]>>,
    log: Vec<Change>,
    application: Application,
    healed: bool,
}

/// The application's knowledge. A place is a number of changes: the state of the key after that
/// many.
#[derive(Debug, Default)]
struct Application {
    grammar: WatchLog,
    /// Place of the last reported value; `None` for an absent key.
    reported: Option<usize>,
    /// Possible places while every change is reported.
    live: Option<Vec<usize>>,
}

impl Restarting {
    /// A client with a live watch.
    ///
    /// # Panics
    /// If the watch is not live without faults.
    #[must_use]
    pub fn new(beginning: Beginning) -> Self {
        let Beginning { incarnations, renews, present, ahead, restarts, ticks } = beginning;
        let config = ClientConfig::new("watcher", [b'0'; 8]);
        let config = config.timeout(INTERVAL).renew_watches(renews.then_some(INTERVAL));
        let mut client = Client::new(config).expect("a plain name");
        let mut server = Server::new(&["watcher"]);
        server.connect(0);
        client.watch(Now::default(), Bytes::from_static(KEY)).expect("room for one");
        let mut world = Self {
            incarnations,
            now: 1,
            ahead,
            restarts,
            made: 0,
            ticks,
            writes: vec![Some(b"3".as_slice()), None, Some(b"2".as_slice())],
            log: Vec::new(),
            application: Application::default(),
            healed: false,
            server,
            client,
        };
        world.make_store();
        if present {
            world.writes.push(Some(b"1"));
            world.write();
        }
        world.client.handle(world.client_now(), Input::Connected { session_present: false });
        world.deliver().expect("nothing goes wrong");
        assert!(world.application.live.is_some());
        world
    }

    const fn client_now(&self) -> Now {
        Now::new(Instant::from_millis(self.now), UnixTime::from_millis(EPOCH + self.now))
    }

    fn store_now(&self) -> Now {
        let ahead = if self.ahead && self.made == 1 { AHEAD } else { 0 };
        let unix = UnixTime::from_millis(EPOCH + self.now + ahead);
        Now::new(Instant::from_millis(self.now), unix)
    }

    fn make_store(&mut self) {
        self.made += 1;
        // All versions are distinct.
        self.now += 1;
        self.server.replace_store(match self.incarnations {
            Incarnations::Distinct => Some(self.made.into()),
            Incarnations::Nothing => None,
            Incarnations::Constant => Some(0),
        });
    }

    fn restart(&mut self) {
        self.restarts -= 1;
        if self.stored().is_some() {
            self.log.push(Change::Vanished);
        }
        self.make_store();
    }

    fn stored(&self) -> Option<Version> {
        let stored = self.server.store().get(self.store_now(), KEY);
        stored.map(|stored| stored.version)
    }

    fn write(&mut self) {
        let before = self.stored();
        let command = match self.writes.pop() {
            None => return,
            Some(None) => Command::Del { key: KEY },
            Some(Some(value)) => {
                Command::Set { key: KEY, value, condition: Condition::Always, expiry: None }
            }
        };
        self.server.write(self.store_now(), &command);
        self.log.extend(match self.stored() {
            Some(version) => Some(Change::Set(version)),
            None => before.map(Change::Deleted),
        });
    }

    /// Advances time to the client's next deadline.
    fn tick(&mut self) {
        if let Some(due) = self.client.poll_timeout() {
            self.now = self.now.max(due.as_millis());
            self.client.handle(self.client_now(), Input::Timeout);
        }
    }

    /// Delivers all packets in transit and their consequences.
    fn deliver(&mut self) -> Result<(), String> {
        loop {
            self.drain()?;
            let (now, store_now) = (self.client_now(), self.store_now());
            let up = self.server.step_up(store_now, 0);
            let down = self.server.step_down(now, 0, &mut self.client);
            if !up && !down {
                return Ok(());
            }
        }
    }

    /// Without further faults, after some renewals, the application is up to date or has seen a
    /// gap.
    fn heal(&mut self) -> Result<(), String> {
        self.deliver()?;
        for _ in 0..4 {
            self.tick();
            self.deliver()?;
        }
        self.healed = true;
        let places = self.application.live.as_ref();
        if places.is_some_and(|places| places.contains(&self.log.len())) {
            Ok(())
        } else {
            Err(format!("never reported: {:?} of {:?}", self.application, self.log))
        }
    }

    fn drain(&mut self) -> Result<(), String> {
        while let Some(event) = self.client.poll_event() {
            if let Event::Watch { id, event } = event {
                self.application.take(id, &event, &self.log)?;
            }
        }
        self.server.collect(0, &mut self.client);
        Ok(())
    }
}

impl Application {
    fn take(&mut self, id: WatchId, event: &WatchEvent, log: &[Change]) -> Result<(), String> {
        // Another store may issue lower versions.
        self.grammar.take(id, event, false);
        match event {
            WatchEvent::Gap => self.live = None,
            WatchEvent::Live => {
                let is_absent = |place: &usize| {
                    let last = place.checked_sub(1).and_then(|before| log.get(before));
                    !matches!(last, Some(Change::Set(_)))
                };
                let absent = || (0..=log.len()).filter(is_absent).collect();
                self.live = Some(self.reported.map_or_else(absent, |place| vec![place]));
            }
            WatchEvent::Changed { value, version } => {
                let is_it = |change: &Change| match (change, version) {
                    (Change::Set(set), Some(version)) => value.is_some() && set == version,
                    (Change::Deleted(gone), Some(version)) => value.is_none() && gone == version,
                    _ => false,
                };
                let place = log.iter().position(is_it);
                if value.is_some() && place.is_none() {
                    return Err(format!("{event:?} is not of {log:?}"));
                }
                if let Some(places) = &mut self.live {
                    let place = place.filter(|place| places.contains(place)).ok_or_else(|| {
                        format!("a change is missing between {places:?} and {event:?} of {log:?}")
                    })?;
                    *places = vec![place + 1];
                }
                self.reported = place.map(|place| place + 1).filter(|_| value.is_some());
            }
            other => return Err(format!("it ended, or an unknown event: {other:?}")),
        }
        Ok(())
    }
}

const RESTART: &str = "the store restarts";
const WRITE: &str = "another client writes";
const TICK: &str = "time passes";
const UP: &str = "a packet arrives";
const DOWN: &str = "a packet comes back";
const HEAL: &str = "no more faults";

impl SmallWorld for Restarting {
    fn choices(&self) -> Vec<&'static str> {
        let (up, down) = self.server.in_flight(0);
        let over = self.restarts == 0 && self.writes.is_empty();
        let options = [
            (self.restarts > 0, RESTART),
            (!self.writes.is_empty(), WRITE),
            (self.ticks > 0 && self.client.poll_timeout().is_some(), TICK),
            (up > 0, UP),
            (down > 0, DOWN),
            (over, HEAL),
        ];
        let can = |(can, _): &(bool, _)| *can && !self.healed;
        options.into_iter().filter(can).map(|(_, name)| name).collect()
    }

    fn choose(&mut self, choice: &'static str) -> Result<(), String> {
        match choice {
            RESTART => self.restart(),
            WRITE => self.write(),
            TICK => {
                self.ticks -= 1;
                self.tick();
            }
            UP => _ = self.server.step_up(self.store_now(), 0),
            DOWN => {
                let now = self.client_now();
                self.server.step_down(now, 0, &mut self.client);
            }
            _ => self.heal()?,
        }
        self.drain()
    }

    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        if self.healed { Ok(()) } else { write!(out, "{self:?}") }
    }
}
