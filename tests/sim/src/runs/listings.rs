//! Scans on an unreliable network: some clients scan page by page and retry lost pages, while
//! others set and delete keys. With some seeds a durable store crashes between two pages.
//!
//! Checks that a key which exists throughout is listed once, that no key is listed twice, and that
//! no key is listed which was absent while its page was requested. Without further faults every
//! scan completes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::{ClientIndex, DriverConfig, Faults, Interceptor, Message, World};
use bytes::Bytes;
use fastrand::Rng;
use statestore_proto::client::{ClientConfig, Event, Request, RequestId};
use statestore_proto::glob::Pattern;
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Page, PageEncoder, RequestKind};
use statestore_proto::store::{Durability, StoreConfig};
use statestore_proto::time::Instant;
use statestore_proto::transport::Correlation;

use super::scenario;

/// Keys that exist from the first page to the last, and keys that come and go.
const ANCHORS: usize = 24;
const MOVERS: usize = 16;

const PATTERNS: [&str; 4] = ["*", "k/*", "*[0-4]", "?/?[!3]"];

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanTwin {
    /// Nothing.
    Sound,
    /// Some pages lack one of their keys.
    LostKey,
    /// Some pages carry the token of the page before.
    OldToken,
    /// A client whose page was lost restarts the scan and keeps its keys.
    Restarts,
    /// Some pages contain a key of an earlier scan.
    Ghost,
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct ScanReport {
    /// The first violation.
    pub wrong: Option<String>,
    /// Completed scans.
    pub listings: u32,
    /// Pages received.
    pub pages: u32,
    /// Pages that were empty but not the last.
    pub empty: u32,
    /// Pages requested again.
    pub again: u32,
    /// Crashes of the store.
    pub crashes: u32,
}

/// A scan in progress.
struct Listing {
    pattern: &'static str,
    token: Option<Bytes>,
    /// The outstanding page, and the time of its request.
    asked: Option<(RequestId, Instant)>,
    found: BTreeMap<Bytes, u32>,
}

struct Run {
    rng: Rng,
    twin: ScanTwin,
    world: World,
    writers: Vec<ClientIndex>,
    listers: Vec<(ClientIndex, Option<Listing>)>,
    /// The last time at which each key existed or may have existed.
    seen: BTreeMap<Bytes, Instant>,
    /// Keys with an outstanding SET.
    setting: BTreeMap<(usize, RequestId), Bytes>,
    /// New scans may start.
    lists: bool,
    report: ScanReport,
}

/// Runs a seed.
#[must_use]
pub fn run(seed: u64, twin: ScanTwin) -> ScanReport {
    let mut run = Run::new(seed, twin);
    run.begin();
    run.live();
    run.end();
    run.report
}

impl Run {
    fn new(seed: u64, twin: ScanTwin) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5ca4);
        let limits = StoreLimits {
            page_bytes_max: rng.usize(10..120),
            page_work_max: rng.usize(60..1_500),
            ..StoreLimits::default()
        };
        let config = StoreConfig::new(rng.u64(..)).limits(limits).durability(Durability::All);
        let mut world = World::new(rng.u64(..), Faults::default(), config);
        let persist_max = Duration::from_millis(rng.u64(0..=10));
        world.set_driver_config(DriverConfig { persist_max, ..DriverConfig::default() });
        world.set_reconnect_after(Duration::from_millis(rng.u64(1..=200)));
        if let Some(interceptor) = interceptor(twin) {
            world.set_interceptor(interceptor);
        }
        let mut clients = (0..4_u8).map(|number| {
            let config = ClientConfig::new(&format!("c{number}"), [number + 1; 8]);
            let timeout = Duration::from_millis(rng.u64(200..=900));
            let mut clock = scenario::clock(&mut rng, true);
            clock.offset_ms = clock.offset_ms.clamp(-50_000, 50_000);
            let config = config.timeout(timeout);
            world.add_configured(config, clock).expect("another name")
        });
        let writers = clients.by_ref().take(2).collect();
        let listers = clients.map(|index| (index, None)).collect();
        Self {
            rng,
            twin,
            world,
            writers,
            listers,
            seen: BTreeMap::new(),
            setting: BTreeMap::new(),
            lists: false,
            report: ScanReport::default(),
        }
    }

    /// Without faults, so that the permanent keys exist.
    fn begin(&mut self) {
        self.wait(Duration::from_millis(500));
        for number in 0..ANCHORS {
            self.submit(0, Request::set(anchor(number), "v").into());
        }
        self.wait(Duration::from_secs(2));
        let (store, _) = self.world.store();
        assert_eq!(store.len(), ANCHORS, "nothing went wrong so far");
        self.world.set_faults(Faults {
            delay_min: Duration::from_millis(1),
            delay_max: Duration::from_millis(self.rng.u64(2..=60)),
            loss: self.rng.u16(0..=80),
            duplication: self.rng.u16(0..=150),
            reordering: self.rng.u16(0..=300),
            disconnects: if self.rng.u8(0..3) == 0 { self.rng.u16(1..=10) } else { 0 },
        });
    }

    fn live(&mut self) {
        self.lists = true;
        let crashes = self.rng.u8(0..3) == 0;
        for _ in 0..80 {
            self.write();
            if crashes && self.rng.u8(0..20) == 0 {
                let limits = StoreLimits { page_bytes_max: 64, ..StoreLimits::default() };
                let config = StoreConfig::new(self.rng.u64(..)).limits(limits);
                self.world.crash_store(config.durability(Durability::All));
                self.report.crashes += 1;
            }
            let pause = self.rng.u64(0..=60);
            self.wait(Duration::from_millis(pause));
        }
    }

    /// Ends the faults.
    fn end(&mut self) {
        // An endless sequence of pages must take time.
        let millisecond = Duration::from_millis(1);
        let (delay_min, delay_max) = (millisecond, millisecond);
        self.world.set_faults(Faults { delay_min, delay_max, ..Faults::default() });
        self.lists = false;
        self.wait(Duration::from_secs(30));
        if self.listers.iter().any(|(_, listing)| listing.is_some()) {
            self.wrong("a listing does not come to its end".into());
        }
    }

    /// Writes a temporary key, or another value of a permanent key.
    fn write(&mut self) {
        let writer = self.rng.usize(0..self.writers.len());
        let mover = format!("k/{}", self.rng.usize(0..MOVERS));
        let request = match self.rng.u8(0..8) {
            0 => Request::set(anchor(self.rng.usize(0..ANCHORS)), "w").into(),
            1..=3 => Request::set(mover, "v").into(),
            4 => {
                let px = Duration::from_millis(self.rng.u64(1..=300));
                Request::set(mover, "v").expires_after(px).into()
            }
            _ => Request::del(mover).into(),
        };
        self.submit(writer, request);
    }

    fn submit(&mut self, writer: usize, request: Request) {
        let Some((client, now)) = self.world.client(self.writers[writer]) else { return };
        let key = request.subject().clone();
        let sets = request.kind() == RequestKind::Set;
        if let Ok(id) = client.submit(now, request)
            && sets
        {
            self.setting.insert((writer, id), key);
        }
    }

    fn wait(&mut self, duration: Duration) {
        let limit = self.world.now() + duration;
        self.drive();
        while self.report.wrong.is_none() && self.world.now() < limit {
            self.world.step(limit);
            self.drive();
        }
    }

    fn drive(&mut self) {
        self.look();
        for (number, writer) in self.writers.iter().enumerate() {
            while let Some(event) = self.world.poll_event(*writer) {
                if let Event::Completed { id, .. } = event {
                    self.setting.remove(&(number, id));
                }
            }
        }
        for who in 0..self.listers.len() {
            self.receive(who);
            self.ask(who);
        }
    }

    /// Records the keys that exist, or may have existed since the last call.
    fn look(&mut self) {
        let now = self.world.now();
        let (store, at) = self.world.store();
        let stored = store.iter(at).map(|entry| Bytes::copy_from_slice(entry.key));
        let being_set = self.setting.values().cloned();
        let there: Vec<Bytes> = stored.chain(being_set).collect();
        self.seen.extend(there.into_iter().map(|key| (key, now)));
    }

    fn receive(&mut self, who: usize) {
        while let Some(event) = self.world.poll_event(self.listers[who].0) {
            let Event::Completed { id, outcome } = event else { continue };
            let Some(listing) = &mut self.listers[who].1 else { continue };
            let Some((_, asked)) = listing.asked.take_if(|(asked, _)| *asked == id) else {
                continue;
            };
            match outcome.into_page() {
                Ok(page) => self.take(who, asked, &page),
                Err(_) => {
                    self.report.again += 1;
                    if self.twin == ScanTwin::Restarts {
                        listing.token = None;
                    }
                }
            }
        }
    }

    fn take(&mut self, who: usize, asked: Instant, page: &Page<Bytes>) {
        let Some(listing) = &mut self.listers[who].1 else { return };
        let pattern = Pattern::new(listing.pattern.as_bytes()).expect("a pattern");
        self.report.pages += 1;
        listing.token = page.shared_token();
        self.report.empty += u32::from(page.is_empty() && listing.token.is_some());
        let mut wrong = None;
        for key in page.shared_keys() {
            if !pattern.matches(&key) {
                wrong = Some(format!("{key:?} is listed for {}", listing.pattern));
            }
            if self.seen.get(&key).is_none_or(|seen| *seen < asked) {
                wrong = Some(format!("{key:?} was absent when its page was requested"));
            }
            let times = listing.found.entry(key.clone()).or_default();
            *times += 1;
            if *times > 1 {
                wrong = Some(format!("{key:?} is listed twice"));
            }
        }
        if listing.token.is_none() {
            let anchors = (0..ANCHORS).map(|number| Bytes::from(anchor(number)));
            let mut missing = anchors.filter(|key| pattern.matches(key));
            if let Some(key) = missing.find(|key| !listing.found.contains_key(key)) {
                wrong = Some(format!("{key:?} is missing from the listing of {}", listing.pattern));
            }
            self.listers[who].1 = None;
            self.report.listings += 1;
        }
        if let Some(wrong) = wrong {
            self.wrong(wrong);
        }
    }

    fn ask(&mut self, who: usize) {
        let (index, listing) = &mut self.listers[who];
        if listing.is_none() && self.lists {
            let pattern = PATTERNS[self.rng.usize(0..PATTERNS.len())];
            *listing = Some(Listing { pattern, token: None, asked: None, found: BTreeMap::new() });
        }
        let Some(listing) = listing.as_mut().filter(|listing| listing.asked.is_none()) else {
            return;
        };
        let Some((client, now)) = self.world.client(*index) else { return };
        let request = Request::scan(listing.pattern, listing.token.clone());
        if let Ok(id) = client.submit(now, request) {
            listing.asked = Some((id, self.world.now()));
        }
    }

    fn wrong(&mut self, text: String) {
        self.report.wrong.get_or_insert(text);
    }
}

fn anchor(number: usize) -> String {
    // Between, before and after the others.
    match number % 3 {
        0 => format!("a/{number}"),
        1 => format!("k/{number}-"),
        _ => format!("z/{number}"),
    }
}

fn interceptor(twin: ScanTwin) -> Option<Interceptor> {
    let (mut pages, mut tokens) = (0_u32, BTreeMap::new());
    let mut listed: VecDeque<Vec<u8>> = VecDeque::new();
    let changes = matches!(twin, ScanTwin::LostKey | ScanTwin::OldToken | ScanTwin::Ghost);
    changes.then(|| {
        Box::new(move |message: &mut Message| {
            let Ok(page) = Page::decode(&message.payload) else { return };
            let mut keys: Vec<&[u8]> = page.keys().collect();
            let mut token = page.token();
            pages += 1;
            let nonce = message.correlation_data.as_ref().map(Correlation::as_bytes);
            let client = nonce.unwrap_or_default().first().copied();
            let before = tokens.insert(client, token.map(<[u8]>::to_vec)).flatten();
            let movers = keys.iter().filter(|key| key.starts_with(b"k/") && !key.ends_with(b"-"));
            listed.extend(movers.map(|key| key.to_vec()));
            let ghost = if listed.len() > 40 { listed.pop_front() } else { None };
            match twin {
                ScanTwin::LostKey if pages.is_multiple_of(4) => _ = keys.pop(),
                ScanTwin::OldToken if pages.is_multiple_of(4) => {
                    token = before.as_deref().or(token)
                }
                ScanTwin::Ghost => keys.extend(ghost.as_deref()),
                _ => {}
            }
            message.payload = PageEncoder { keys: &keys, token }.encode().into();
        }) as Interceptor
    })
}
