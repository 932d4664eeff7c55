//! The choices that a seed makes before a run.

use std::time::Duration;

use crate::{Clock, Faults};
use fastrand::Rng;
use statestore_proto::limits::StoreLimits;
use statestore_proto::store::Durability;

/// The kind of fault in a run, chosen by the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mix {
    /// No faults and no delay.
    Faultless,
    /// Delay, loss, duplication and reconnects; each connection keeps its order.
    InOrder,
    /// As `InOrder`, and messages of different topics overtake each other.
    Reordered,
    /// As `Reordered`, with higher rates.
    Heavy,
    /// Connections are lost with messages in transit, the store's own included. No duplicates.
    ///
    /// The simulated broker acknowledges each copy of a duplicated PUBLISH separately. If one copy
    /// of a duplicated request reached no store, the request would be acknowledged as rejected and
    /// still be applied, which no broker does on one connection. So the two faults are not
    /// combined.
    StoreLink,
    /// The store persists every write and crashes. The next one restores the records, written
    /// within 30 ms.
    ///
    /// With half of the seeds a snapshot sometimes replaces the log, taken while the store runs.
    /// Registrations are durable. Unacknowledged requests are redelivered to the next store.
    ///
    /// Guaranteed: no reply and no notification is ever contradicted. All checks hold across
    /// crashes, *one effect for each request* included. No client receives output of a write that
    /// was not persisted. Watches report a gap with the first reply of the next store, and every
    /// change from there on. Versions increase although some crashes set the store's wall clock
    /// back.
    Durable,
    /// Limits that a few requests reach: writes and watches are refused, and requests wait at the
    /// broker until the store can receive. With half of the seeds records take time too.
    ///
    /// Guaranteed: the limits hold, refusals change nothing and occur exactly when the store is
    /// full, and back-pressure loses nothing: as `InOrder`, except that a watch may be refused.
    Quota,
    /// The wall clocks of clients and store step by minutes, in both directions, past the drift
    /// limit.
    ///
    /// Guaranteed: as `InOrder`. Versions increase whatever the clocks do.
    ClockSteps,
    /// A client or the store pauses for longer than its leases and time-outs; messages wait for it.
    ///
    /// Guaranteed: as `InOrder`, and requests past their message expiry are not executed.
    Pauses,
    /// Another store takes over the client id of the store, and so its requests. It restores the
    /// records, or with half of the seeds starts empty.
    ///
    /// Guaranteed in the first case: as `Durable`. In the second, each store replies correctly and
    /// the guarantees of watches hold; values, fences and the order of versions end with their
    /// store.
    Takeover,
    /// An embedded broker: notifications need no subscription, and the store learns of disconnected
    /// clients.
    ///
    /// Guaranteed: as `InOrder`, and no notification after the reply to the STOP that ends its
    /// registration.
    Direct,
    /// As `Direct`, with hostile clients connected through raw bytes. They never read or never
    /// acknowledge, take over each other's connections, leave wills and partial packets, subscribe
    /// to everything, and watch the writes of others.
    ///
    /// Guaranteed: as `Direct`. Only hostile clients are disconnected, and the memory of the broker
    /// stays within its budget.
    Hostile,
}

impl Mix {
    /// All mixes, in the order in which seeds use them.
    pub const ALL: [Self; 12] = [
        Self::Faultless,
        Self::InOrder,
        Self::Reordered,
        Self::Heavy,
        Self::StoreLink,
        Self::Durable,
        Self::Quota,
        Self::ClockSteps,
        Self::Pauses,
        Self::Takeover,
        Self::Direct,
        Self::Hostile,
    ];

    /// The mix of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let turn = usize::try_from(seed % Self::ALL.len() as u64).unwrap_or_default();
        Self::ALL[turn]
    }

    /// The first `count` seeds of this mix.
    pub fn seeds(self, count: u64) -> impl Iterator<Item = u64> {
        (0..).filter(move |seed| Self::of(*seed) == self).take(usize::try_from(count).unwrap_or(0))
    }

    /// The guarantees of watches under these faults.
    #[must_use]
    pub const fn delivery(self) -> Delivery {
        match self {
            Self::Faultless
            | Self::InOrder
            | Self::Quota
            | Self::ClockSteps
            | Self::Pauses
            | Self::Direct
            | Self::Hostile => Delivery::InOrder,
            Self::Reordered | Self::Heavy => Delivery::Reordered,
            Self::StoreLink => Delivery::Broken,
            Self::Durable | Self::Takeover => Delivery::Replaced,
        }
    }

    /// Returns whether the next store must continue the expiries of its predecessor.
    const fn restores(self) -> bool {
        matches!(self, Self::Durable | Self::Takeover)
    }
}

/// Delivery of notifications to a connected client, which decides the guarantees of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All notifications, in order with the store's replies.
    InOrder,
    /// All notifications in order, but replies and notifications may overtake each other.
    Reordered,
    /// Notifications may be lost with the store's connection.
    Broken,
    /// As `InOrder`, until another store replaces the one with the registrations. The client
    /// detects that with the next reply.
    Replaced,
}

/// Properties of one client.
#[derive(Clone, Copy, Debug)]
pub struct ClientSetup {
    /// Its wall clock.
    pub clock: Clock,
    /// Time-out of its requests.
    pub timeout: Duration,
    /// Renewal interval of its watches, if they renew.
    pub renewal: Option<Duration>,
    /// It polls its events rarely and has a small event queue.
    pub sleepy: bool,
}

/// All choices made before the first step.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The kind of fault.
    pub mix: Mix,
    /// Number of clients, two to five.
    pub clients: Vec<ClientSetup>,
    /// Number of plain keys, few so that clients collide.
    pub plain_keys: usize,
    /// Faults of the network.
    pub faults: Faults,
    /// The store's wall clock.
    pub store_clock: Clock,
    /// Delay before each reconnect.
    pub reconnect_after: Duration,
    /// Steps per thousand that cut a connection, or start or end a watch, instead of waiting.
    pub churn: u16,
    /// Steps per thousand that cause the fault of the mix.
    pub trouble: u16,
    /// Limits of the store.
    pub limits: StoreLimits,
    /// Durability of the store.
    pub durability: Durability,
    /// Maximum delay of a write to the journal.
    pub persist_max: Duration,
    /// Number of records after which a snapshot replaces the log; zero for never.
    pub snapshot_every: usize,
    /// Registrations are durable; otherwise a redelivered STOP finds none.
    pub durable_registrations: bool,
    /// A successor restores the records.
    pub restored: bool,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mix = Mix::of(seed);
        // A separate random stream from that of the run.
        let mut rng = Rng::with_seed(seed ^ 0x5ce0_a510_5ce0_a510);
        let wrong_clocks = mix != Mix::Faultless;
        let clients = (0..rng.usize(2..=5))
            .map(|_| ClientSetup {
                clock: clock(&mut rng, wrong_clocks),
                timeout: Duration::from_millis(rng.u64(300..=3_000)),
                renewal: rng.bool().then(|| Duration::from_millis(rng.u64(50..=1_000))),
                sleepy: mix != Mix::Faultless && rng.u8(0..6) == 0,
            })
            .collect();
        let wrong_store = wrong_clocks && rng.bool();
        let plain_keys = rng.usize(1..=2);
        let faults = faults(&mut rng, mix);
        let mut store_clock = clock(&mut rng, wrong_store);
        if mix.restores() {
            store_clock.drift_ppm = 0;
        }
        let writes = mix.restores() || (mix == Mix::Quota && rng.bool());
        Self {
            seed,
            mix,
            clients,
            plain_keys,
            faults,
            store_clock,
            // A store that is disconnected most of the time proves little.
            reconnect_after: Duration::from_millis(
                rng.u64(1..=if mix.restores() { 100 } else { 400 }),
            ),
            churn: rng.u16(10..=100),
            trouble: match mix {
                Mix::Durable | Mix::ClockSteps | Mix::Pauses | Mix::Takeover => rng.u16(5..=25),
                _ => 0,
            },
            limits: if mix == Mix::Quota { limits(&mut rng) } else { StoreLimits::default() },
            durability: if writes { Durability::All } else { Durability::None },
            persist_max: Duration::from_millis(if writes { rng.u64(0..=30) } else { 0 }),
            restored: mix == Mix::Durable || rng.bool(),
            snapshot_every: if mix.restores() && rng.bool() { rng.usize(10..=60) } else { 0 },
            durable_registrations: mix == Mix::Durable || (mix == Mix::Takeover && rng.bool()),
        }
    }

    /// Returns whether the store's wall clock may step.
    pub(super) fn store_clock_steps(&self) -> bool {
        !self.mix.restores()
    }

    /// Maximum transit time of an effect of the store to a connected client. A write waits for the
    /// current commit, for a small one, and for its own. A deferred expiry waited as long before.
    #[must_use]
    pub fn transit_max(&self) -> u64 {
        let longest = self.faults.delay_max * 2 + self.persist_max * 6;
        u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that is correct, slightly wrong, wrong within the drift limit, or beyond.
pub(super) fn clock(rng: &mut Rng, may_be_wrong: bool) -> Clock {
    if !may_be_wrong {
        return Clock::default();
    }
    let offset_ms = match rng.u8(0..10) {
        0..=3 => 0,
        4 | 5 => rng.i64(-100..=100),
        6 | 7 => rng.i64(-55_000..=55_000),
        _ => rng.i64(-150_000..=150_000),
    };
    Clock { offset_ms, drift_ppm: rng.i64(-500..=500) }
}

/// A clock wrong by more than the drift limit of one minute.
pub(super) fn far_clock(rng: &mut Rng) -> Clock {
    let ahead = rng.i64(70_000..=900_000);
    let offset_ms = if rng.bool() { ahead } else { -ahead };
    Clock { offset_ms, drift_ppm: rng.i64(-500..=500) }
}

/// Limits that are constantly reached: there are three or four keys, and values of a few bytes.
fn limits(rng: &mut Rng) -> StoreLimits {
    StoreLimits {
        keys_max: rng.usize(2..=4),
        bytes_max: rng.usize(14..=40),
        key_bytes_max: if rng.u8(0..4) == 0 { 6 } else { 64 },
        registrations_max: rng.usize(2..=8),
        registrations_per_key_max: rng.usize(1..=4),
        outgoing_max: 0,
        client_percent: rng.u8(40..=100),
        ..StoreLimits::default()
    }
}

fn faults(rng: &mut Rng, mix: Mix) -> Faults {
    let millis = Duration::from_millis;
    let mild = Faults {
        delay_min: millis(rng.u64(0..=2)),
        delay_max: millis(rng.u64(3..=40)),
        loss: rng.u16(0..=30),
        duplication: rng.u16(0..=60),
        reordering: 0,
        disconnects: 0,
    };
    match mix {
        Mix::Faultless => Faults::default(),
        Mix::InOrder | Mix::Quota | Mix::ClockSteps | Mix::Pauses => mild,
        // Fast enough that a reply would precede its record if it did not wait.
        Mix::Durable | Mix::Takeover => {
            Faults { duplication: 0, delay_max: millis(rng.u64(2..=12)), ..mild }
        }
        Mix::Direct | Mix::Hostile => Faults { loss: 0, duplication: 0, ..mild },
        Mix::Reordered => Faults { reordering: rng.u16(50..=500), ..mild },
        Mix::Heavy => Faults {
            delay_max: millis(rng.u64(20..=250)),
            loss: rng.u16(20..=150),
            duplication: rng.u16(50..=400),
            reordering: rng.u16(100..=800),
            ..mild
        },
        Mix::StoreLink => Faults { duplication: 0, disconnects: rng.u16(1..=15), ..mild },
    }
}
