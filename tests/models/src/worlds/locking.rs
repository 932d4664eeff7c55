//! Contenders for one lock: replies are lost, processes sleep longer than the lease, clocks
//! disagree, time passes at any moment, and the store restarts empty. The locks are the production
//! machine; the store is the reference store.

mod parts;

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use statestore_proto::client::{Outcome, Request, WatchEvent};
use statestore_proto::hlc::{FencingToken, Hlc, Version};
use statestore_proto::limits::StoreLimits;
use statestore_proto::lock::{LockAction, LockEvent, LockState};
use statestore_proto::message::{Command, Condition, Incarnation, Notification, Reply, Response};
use statestore_proto::time::{Instant, Now, UnixTime};

pub use parts::{Budget, Fault};

use super::SmallWorld;
use crate::reference::{Entry, Notified, ReferenceStore, Request as Asked, Stamp, text};
use parts::{Contender, Down, EPOCH, LEASE, LOCK, ORIGIN, RATE, TIMEOUT, Up, WALL};

const DATA: &[u8] = b"data";

/// The world.
#[derive(Clone, Debug)]
pub struct Locking {
    fault: Fault,
    budget: Budget,
    reference: ReferenceStore,
    /// The number of the current store.
    store: u64,
    contenders: Vec<Contender>,
    now: u64,
    /// The greatest token of each store that a holder has received.
    last_token: [Option<FencingToken>; 3],
    /// The token that guarded the last accepted write.
    last_write: Option<FencingToken>,
}

impl Locking {
    /// No contender has requested the lock yet, or with `held` the first one holds it.
    ///
    /// # Panics
    /// If an attempt without contenders and faults fails.
    #[must_use]
    pub fn new(fault: Fault, budget: Budget) -> Self {
        let mut world = Self {
            fault,
            budget,
            reference: ReferenceStore::new(StoreLimits::default()),
            store: 0,
            contenders: (0..budget.contenders)
                .map(|who| Contender::new(fault, &budget, who))
                .collect(),
            now: 0,
            last_token: [None, None, None],
            last_write: None,
        };
        if budget.held {
            for choice in [ACQUIRES[0], ARRIVES[0], RECEIVES[0]] {
                world.choose(choice).expect("no other contender exists");
            }
        }
        world
    }

    fn local(&self, who: usize) -> Instant {
        Instant::from_millis(ORIGIN[who] + self.now * RATE[who] / 1_000)
    }

    /// The first moment at which a contender's clock shows `due`.
    fn world_time(who: usize, due: Instant) -> u64 {
        due.as_millis().saturating_sub(ORIGIN[who]).saturating_mul(1_000).div_ceil(RATE[who])
    }

    fn time(&self) -> Now {
        Now::new(Instant::from_millis(self.now), UnixTime::from_millis(EPOCH + self.now))
    }

    fn item(&self) -> Option<&Entry> {
        self.reference.entries.get(LOCK)
    }

    /// Returns whether a contender holds the lock at the current store.
    fn holds(&self, who: usize) -> bool {
        let one = &self.contenders[who];
        let lock = &one.lock;
        if one.acquired_at != self.store {
            return false;
        }
        match self.fault {
            Fault::NegativeMargin => lock
                .held_until()
                .is_some_and(|until| self.local(who) < until + Duration::from_millis(TIMEOUT)),
            _ => lock.is_held(self.local(who)),
        }
    }

    fn next_due(&self) -> Option<u64> {
        let timers = self.contenders.iter().enumerate().filter(|(_, one)| !one.asleep);
        let timers = timers.flat_map(|(who, one)| {
            let deaf = self.fault == Fault::NoTimer && one.lock.state() == LockState::Waiting;
            let timer = one.lock.poll_timeout().filter(|_| !deaf);
            let timer = timer.map(|due| Self::world_time(who, due));
            [timer, one.outstanding.map(|(_, until)| until)]
        });
        let expiries = self.reference.entries.values().map(|item| item.due);
        timers.chain(expiries).flatten().min()
    }

    /// Advances time to the next deadline.
    fn tick(&mut self) {
        let Some(due) = self.next_due() else { return };
        self.now = self.now.max(due);
        let notified = self.reference.expire_notifying(self.time());
        self.notify(notified);
    }

    fn notify(&mut self, notified: Vec<Notified>) {
        for notified in notified {
            let Ok(who) = notified.client.parse::<usize>() else { continue };
            let value = match notified.notification {
                Notification::Set(value) => Some(value.into()),
                Notification::Deleted => None,
            };
            let event = WatchEvent::Changed { value, version: Some(version(&notified.version)) };
            self.contenders[who].down.push_back(Down::Watch(event));
        }
    }

    /// Drives the lock of every contender that is awake.
    fn drive(&mut self) -> Result<(), String> {
        for who in 0..self.contenders.len() {
            let local = self.local(who);
            let fault = self.fault;
            let one = &mut self.contenders[who];
            if one.asleep {
                continue;
            }
            if let Some((ticket, until)) = one.outstanding
                && until <= self.now
            {
                one.outstanding = None;
                one.unlucky = true;
                one.lock.handle_outcome(local, ticket, Ok(Outcome::TimedOut { sent: true }));
            }
            let deaf = fault == Fault::NoTimer
                && one.lock.state() == LockState::Waiting
                && one.lock.poll_timeout().is_some_and(|due| due <= local);
            while !deaf && let Some(action) = one.lock.poll_action(local) {
                match action {
                    LockAction::Submit { ticket, request } => {
                        if fault == Fault::NoVdel
                            && matches!(request.command(), Some(Command::VDel { .. }))
                        {
                            let reply = Reply::Removed;
                            let incarnation = Some(Incarnation::new(self.store));
                            let outcome = Outcome::Responded {
                                response: Response::Reply(reply),
                                version: None,
                                incarnation,
                            };
                            one.lock.handle_outcome(local, ticket, Ok(outcome));
                            continue;
                        }
                        let limit = request.timeout().ok_or("a request without a limit")?;
                        let until = local + limit;
                        one.outstanding = Some((ticket, Self::world_time(who, until)));
                        let command = request.command().ok_or("a lock lists nothing")?;
                        one.up.push_back(Up::Lock(ticket, command.clone()));
                    }
                    LockAction::Watch(_) => {
                        one.watching = true;
                        one.up.push_back(Up::Watch);
                    }
                    _ => {
                        one.watching = false;
                        self.reference.client_gone(&who.to_string());
                        one.down.retain(|down| matches!(down, Down::Outcome(..)));
                        one.up.retain(|up| !matches!(up, Up::Watch));
                    }
                }
            }
            self.check_events(who)?;
        }
        self.check()
    }

    /// Checks the events of a contender's lock.
    fn check_events(&mut self, who: usize) -> Result<(), String> {
        let one = &mut self.contenders[who];
        while let Some(event) = one.lock.poll_event() {
            let (token, acquired) = match event {
                LockEvent::Acquired { token } => (token, true),
                LockEvent::Renewed { token } => (token, false),
                _ => continue,
            };
            if acquired && one.contacted < one.news {
                return Err(format!(
                    "acquired at {}, though notified of {}",
                    one.contacted, one.news
                ));
            }
            if !acquired && one.contacted != one.acquired_at {
                return Err(format!("{who} renewed over a new store"));
            }
            one.acquired_at = one.contacted;
            let last = &mut self.last_token[usize::try_from(one.contacted).unwrap_or_default()];
            if last.as_ref().is_some_and(|last| *last >= token) {
                return Err(format!("token {token} after {last:?}"));
            }
            *last = Some(token);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let holders = (0..self.contenders.len()).filter(|who| self.holds(*who));
        let holders: Vec<usize> = holders.collect();
        if holders.len() > 1 {
            return Err(format!("at {} both {holders:?} hold the lock", self.now));
        }
        for (who, one) in self.contenders.iter().enumerate() {
            let ours = self.item().is_some_and(|item| Self::is_of(item, who));
            let knows = one.up.is_empty() && !one.unlucky && self.fault != Fault::SameSession;
            if one.lock.is_settled() && knows && ours {
                return Err(format!("{who} has left the lock behind"));
            }
        }
        Ok(())
    }

    /// Returns whether this contender stored the lock.
    fn is_of(item: &Entry, who: usize) -> bool {
        item.value.starts_with(format!("contender/{who:016x}/").as_bytes())
    }

    fn arrive(&mut self, who: usize) -> Result<(), String> {
        let Some(up) = self.contenders[who].up.pop_front() else { return Ok(()) };
        match up {
            Up::Lock(ticket, command) => {
                let (reply, version) = self.ask(who, command, None);
                let incarnation = Some(Incarnation::new(self.store));
                let incarnation = incarnation.filter(|_| self.fault != Fault::IgnoresStore);
                let reply = reply.map(Bytes::from);
                let outcome =
                    Outcome::Responded { response: Response::Reply(reply), version, incarnation };
                self.contenders[who].down.push_back(Down::Outcome(ticket, outcome, self.store));
            }
            Up::Watch => {
                let key = || Bytes::from_static(LOCK);
                self.ask(who, Command::Watch { key: key() }, None);
                let (reply, version) = self.ask(who, Command::Get { key: key() }, None);
                let down = &mut self.contenders[who].down;
                if let Reply::Value(value) = reply {
                    let event = WatchEvent::Changed { value: Some(value.into()), version };
                    down.push_back(Down::Watch(event));
                }
                down.push_back(Down::Watch(WatchEvent::Live));
            }
            Up::Write(guard, token) => {
                let (key, value) = (Bytes::from_static(DATA), Bytes::from_static(b"x"));
                let set = Command::Set { key, value, condition: Condition::Always, expiry: None };
                let (reply, _) = self.ask(who, set, token);
                if reply == Reply::Done {
                    if self.last_write.as_ref().is_some_and(|last| *last > guard) {
                        return Err(format!("a stale write: {guard} after {:?}", self.last_write));
                    }
                    self.last_write = Some(guard);
                }
            }
        }
        Ok(())
    }

    fn ask(
        &mut self,
        who: usize,
        command: Command<Bytes>,
        token: Option<FencingToken>,
    ) -> (Reply<Vec<u8>>, Option<Version>) {
        let wall = WALL[who] + self.now;
        let answer = self.reference.request(&Asked {
            now: self.time(),
            client: who.to_string(),
            command: command.map(|bytes| bytes.to_vec()),
            timestamp: Some(format!("{wall}:0:c{who}")),
            token: token.map(|token| token.to_string()),
            full: false,
        });
        self.notify(answer.notified);
        (answer.reply, answer.version.as_ref().map(version))
    }

    fn receive(&mut self, who: usize) {
        let local = self.local(who);
        let one = &mut self.contenders[who];
        match one.down.pop_front() {
            // A reply after the time-out is stale.
            Some(Down::Outcome(ticket, outcome, store))
                if one.outstanding.is_some_and(|(other, _)| other == ticket) =>
            {
                one.outstanding = None;
                // The client registers with the new store.
                if one.contacted != store && one.watching {
                    one.up.push_back(Up::Watch);
                    one.down.push_back(Down::Watch(WatchEvent::Gap));
                }
                one.contacted = store;
                one.lock.handle_outcome(local, ticket, Ok(outcome));
            }
            Some(Down::Watch(event)) if one.watching => one.lock.handle_watch(local, &event),
            _ => {}
        }
    }

    /// Without further faults, a live waiter gets the lock in bounded time, and no lock is left
    /// behind.
    fn heal(mut self) -> Result<(), String> {
        self.contenders.iter_mut().for_each(|one| one.asleep = false);
        let until = self.now + 6 * LEASE;
        while self.now < until {
            self.drive()?;
            for who in 0..self.contenders.len() {
                while !self.contenders[who].up.is_empty() {
                    self.arrive(who)?;
                }
                while !self.contenders[who].down.is_empty() {
                    self.receive(who);
                }
            }
            self.drive()?;
            let quiet = self.contenders.iter().all(|one| one.up.is_empty() && one.down.is_empty());
            if quiet {
                match self.next_due().filter(|due| *due <= until) {
                    Some(_) => self.tick(),
                    None => self.now = until,
                }
            }
        }
        self.drive()?;
        let states: Vec<_> = self.contenders.iter().map(|one| one.lock.state()).collect();
        let waits = states.contains(&LockState::Waiting);
        let held = states.contains(&LockState::Held);
        match (waits, held, self.item()) {
            (true, false, _) => Err(format!("no contender gets the lock: {states:?}")),
            (_, false, Some(item)) => Err(format!("{item:?} is left behind: {states:?}")),
            _ => Ok(()),
        }
    }

    /// The lock learns of a new store in any order with its replies, or not at all.
    fn announce_store(&mut self, who: usize) {
        let local = self.local(who);
        let one = &mut self.contenders[who];
        one.news = self.store;
        one.lock.handle_incarnation(local, Some(Incarnation::new(self.store)));
    }

    fn restart(&mut self) {
        self.budget.restarts -= 1;
        self.store += 1;
        self.reference = ReferenceStore::new(StoreLimits::default());
    }

    fn write(&mut self, who: usize) {
        let local = self.local(who);
        let key = Bytes::from_static(DATA);
        let one = &mut self.contenders[who];
        let fenced = one.lock.fence(local, Request::del(key)).map(Request::from);
        if let Some(token) = fenced.as_ref().and_then(Request::fencing_token) {
            let sent = (self.fault != Fault::NoToken).then(|| token.clone());
            one.writes -= 1;
            one.up.push_back(Up::Write(token.clone(), sent));
        }
    }

    fn acquire(&mut self, who: usize) -> Result<(), String> {
        let local = self.local(who);
        let deadline = self.budget.deadlines.then(|| local + Duration::from_millis(LEASE / 2));
        let one = &mut self.contenders[who];
        one.tries -= 1;
        one.lock.acquire(local, deadline).map_err(|error| error.to_string())
    }
}

fn version(stamp: &Stamp) -> Version {
    Version::new(text(stamp).parse::<Hlc>().expect("the text of a clock value"))
}

const ACQUIRES: [&str; 3] = ["A acquires", "B acquires", "C acquires"];
const RELEASES: [&str; 3] = ["A releases", "B releases", "C releases"];
const WRITES: [&str; 3] = ["A writes", "B writes", "C writes"];
const SLEEPS: [&str; 3] = ["A falls asleep", "B falls asleep", "C falls asleep"];
const WAKES: [&str; 3] = ["A wakes up", "B wakes up", "C wakes up"];
const ARRIVES: [&str; 3] = ["A's request arrives", "B's request arrives", "C's request arrives"];
const RECEIVES: [&str; 3] = ["A receives", "B receives", "C receives"];
const LOSES: [&str; 3] =
    ["a message to A is lost", "a message to B is lost", "a message to C is lost"];
const NEWS: [&str; 3] =
    ["A learns of the new store", "B learns of the new store", "C learns of the new store"];
const RESTART: &str = "the store restarts";
const TICK: &str = "time passes";
const HEAL: &str = "no more faults";

impl SmallWorld for Locking {
    fn choices(&self) -> Vec<&'static str> {
        let mut choices = Vec::new();
        for (who, one) in self.contenders.iter().enumerate() {
            let active = matches!(one.lock.state(), LockState::Waiting | LockState::Held);
            let held = one.lock.is_held(self.local(who));
            let options = [
                (!one.asleep && !active && one.tries > 0, ACQUIRES),
                (!one.asleep && held && one.releases > 0, RELEASES),
                (!one.asleep && held && one.writes > 0, WRITES),
                (!one.asleep && active && self.budget.sleeps > 0, SLEEPS),
                (one.asleep, WAKES),
                (!one.up.is_empty(), ARRIVES),
                (!one.asleep && !one.down.is_empty(), RECEIVES),
                (!one.down.is_empty() && self.budget.losses > 0, LOSES),
                (!one.asleep && one.news < self.store && self.fault == Fault::None, NEWS),
            ];
            choices.extend(options.iter().filter(|(can, _)| *can).map(|(_, names)| names[who]));
        }
        if self.budget.restarts > 0 && !self.contenders.is_empty() {
            choices.push(RESTART);
        }
        if self.budget.ticks > 0 && self.next_due().is_some() {
            choices.push(TICK);
        } else if !self.contenders.is_empty() {
            choices.push(HEAL);
        }
        choices
    }

    fn choose(&mut self, choice: &'static str) -> Result<(), String> {
        if choice == HEAL {
            self.clone().heal()?;
            self.contenders.clear();
            return Ok(());
        }
        if choice == TICK {
            self.budget.ticks -= 1;
            self.tick();
            return self.drive();
        }
        if choice == RESTART {
            self.restart();
        }
        for who in 0..self.contenders.len() {
            match choice {
                _ if choice == ACQUIRES[who] => self.acquire(who)?,
                _ if choice == RELEASES[who] => {
                    let local = self.local(who);
                    self.contenders[who].releases -= 1;
                    self.contenders[who].lock.release(local);
                }
                _ if choice == WRITES[who] => self.write(who),
                _ if choice == SLEEPS[who] => {
                    self.budget.sleeps -= 1;
                    self.contenders[who].asleep = true;
                }
                _ if choice == WAKES[who] => self.contenders[who].asleep = false,
                _ if choice == ARRIVES[who] => self.arrive(who)?,
                _ if choice == RECEIVES[who] => self.receive(who),
                _ if choice == NEWS[who] => self.announce_store(who),
                _ if choice == LOSES[who] => {
                    self.budget.losses -= 1;
                    self.contenders[who].unlucky = true;
                    self.contenders[who].down.pop_front();
                }
                _ => {}
            }
        }
        self.drive()
    }

    fn describe(&self, out: &mut dyn Write) -> std::fmt::Result {
        if self.contenders.is_empty() {
            return Ok(());
        }
        let Self { budget, store, now, last_token, last_write, reference, .. } = self;
        let Budget { losses, sleeps, ticks, restarts, .. } = budget;
        write!(out, "{store} {now} {losses} {sleeps} {ticks} {restarts} ")?;
        write!(out, "{last_token:?} {last_write:?} ")?;
        write!(out, "{:?} {:?}", reference.clock.own, reference.watches())?;
        for (key, item) in &reference.entries {
            let Entry { value, version, fence, due } = item;
            let value = value.escape_ascii();
            write!(out, "{} {value} {version:?} {fence:?} {due:?};", key.escape_ascii())?;
        }
        for one in &self.contenders {
            let Contender { lock, tries, releases, writes, asleep, unlucky, .. } = one;
            let Contender { up, down, outstanding, watching, .. } = one;
            write!(out, "{lock:?} {tries} {releases} {writes} {asleep} {unlucky} {watching} ")?;
            let Contender { contacted, news, acquired_at, .. } = one;
            write!(out, "{up:?} {down:?} {outstanding:?} {contacted} {news} {acquired_at};")?;
        }
        Ok(())
    }
}
