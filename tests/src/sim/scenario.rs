//! What a seed decides before a run begins.

use std::time::Duration;

use fastrand::Rng;
use statestore_loopback::{Clock, Faults};
use statestore_proto::limits::StoreLimits;
use statestore_proto::store::Durability;

/// What kind of trouble a run is about. The seed decides that too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mix {
    /// Nothing goes wrong, and nothing takes time.
    Faultless,
    /// Delay, loss, duplication and reconnects; each connection keeps its order.
    InOrder,
    /// That, and messages of different topics overtake each other.
    Reordered,
    /// That, but more of everything.
    Heavy,
    /// Connections die with messages on them, the store's own among them; no duplicates.
    ///
    /// The broker here acknowledges each copy of a doubled PUBLISH by itself. A doubled request of which one copy met
    /// no store is acknowledged as rejected and applied all the same, which no broker does on one connection; so the
    /// two faults are not mixed.
    StoreLink,
    /// The store keeps every write and crashes; the next one begins with what was persisted, which takes up to 30 ms.
    ///
    /// With half of the seeds a snapshot takes the place of the log now and then, and is made while the store goes on.
    /// Registrations are kept. What was not acknowledged comes again to the next store.
    ///
    /// Promised: no answer and no notification is ever contradicted. All checks hold across crashes, *one effect for each
    /// request* among them; what was not persisted nobody was told. Watches tell a gap as soon as their client hears of the
    /// next store, and from there on every change. Versions grow although the store's wall clock goes back at some crashes.
    Durable,
    /// Limits that a few requests reach, so that writes and watches are refused and requests wait at the broker until
    /// the store is ready; with half of the seeds records take their time too.
    ///
    /// Promised: the limits hold, refusals change nothing and come exactly when there is no room, and back-pressure
    /// loses nothing: what `InOrder` promises, but that a watch may be refused.
    Quota,
    /// The wall clocks of the clients and of the store step by minutes, forward and back, past what is tolerated.
    ///
    /// Promised: what `InOrder` promises. Versions grow whatever the clocks do.
    ClockSteps,
    /// A client or the store stands still for longer than its leases and time-outs and goes on; messages wait for it.
    ///
    /// Promised: what `InOrder` promises; and what waited past its expiry is not done.
    Pauses,
    /// Another store takes the client id of the store, and with it the requests. It finds what was persisted, or with
    /// half of the seeds nothing.
    ///
    /// Promised: in the first case what `Durable` promises. In the second each store by itself answers as it must, and
    /// watches keep what they promise; values, fences and the order of versions end with the store that had them.
    Takeover,
    /// The broker hosts the store: notifications come without a subscription, and the store hears who has gone.
    ///
    /// Promised: what `InOrder` promises, and no notification after the answer to the STOP that ends its registration.
    Direct,
    /// As `Direct`, and among the clients are hostile ones, connected by bytes: they never read or never acknowledge, take
    /// over from each other, leave wills and half packets, subscribe to everything, and watch what others write.
    ///
    /// Promised: what `Direct` promises; nothing but the hostile ones is ever ended, and what the broker holds for
    /// everybody stays within its budget.
    Siege,
}

impl Mix {
    /// All of them, in the order in which seeds take turns.
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
        Self::Siege,
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

    /// What watches promise under these faults.
    #[must_use]
    pub const fn delivery(self) -> Delivery {
        match self {
            Self::Faultless
            | Self::InOrder
            | Self::Quota
            | Self::ClockSteps
            | Self::Pauses
            | Self::Direct
            | Self::Siege => Delivery::InOrder,
            Self::Reordered | Self::Heavy => Delivery::Reordered,
            Self::StoreLink => Delivery::Broken,
            Self::Durable | Self::Takeover => Delivery::Replaced,
        }
    }

    /// Whether the store that follows one must count time as that one did.
    const fn restores(self) -> bool {
        matches!(self, Self::Durable | Self::Takeover)
    }
}

/// How notifications reach a connected client, which decides what a watch can promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All of them, in the order in which the store sent them and its replies.
    InOrder,
    /// All of them, in order; but replies and notifications may overtake each other.
    Reordered,
    /// The store's connection may die with notifications on it.
    Broken,
    /// As with `InOrder`, until another store takes the place of the one that knew the registrations; the client hears
    /// that with the next answer.
    Replaced,
}

/// What one client is like.
#[derive(Clone, Copy, Debug)]
pub struct ClientSetup {
    /// Its wall clock.
    pub clock: Clock,
    /// How long its requests may take.
    pub timeout: Duration,
    /// How often watches renew, if they do.
    pub renewal: Option<Duration>,
    /// Whether it polls its events seldom and has little room for them.
    pub sleepy: bool,
}

/// Everything that is decided before the first step.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it all comes from.
    pub seed: u64,
    /// The kind of trouble.
    pub mix: Mix,
    /// Two to five.
    pub clients: Vec<ClientSetup>,
    /// Keys beside the lock and what it guards; few, so that they collide.
    pub plain_keys: usize,
    /// What the network does.
    pub faults: Faults,
    /// The store's wall clock.
    pub store_clock: Clock,
    /// How long everybody waits before connecting again.
    pub reconnect_after: Duration,
    /// How many of a thousand steps of waiting cut a connection, begin a watch or end one instead.
    pub churn: u16,
    /// How many of a thousand steps are what the mix is about.
    pub trouble: u16,
    /// What the store keeps at most.
    pub limits: StoreLimits,
    /// What it writes.
    pub durability: Durability,
    /// How long that takes at most.
    pub persist_max: Duration,
    /// After how many records a snapshot takes the place of the log; never, if zero.
    pub snapshot_every: usize,
    /// Whether registrations are kept; else a STOP that comes again finds none.
    pub durable_watches: bool,
    /// Whether a store that takes over finds what was persisted.
    pub restored: bool,
}

impl Scenario {
    /// What a seed decides.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mix = Mix::of(seed);
        // Another stream than the run's own dice.
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
            // A store that is away most of the time proves little.
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
            durable_watches: mix == Mix::Durable || (mix == Mix::Takeover && rng.bool()),
        }
    }

    /// Whether the store's own wall clock may step.
    pub(super) fn store_clock_steps(&self) -> bool {
        !self.mix.restores()
    }

    /// Nothing that happened in the store is on its way to a connected client for longer. What is written waits for the
    /// batch that is being written and for its own; an expiry that found no room to be told waited for as much before.
    #[must_use]
    pub fn transit_max(&self) -> u64 {
        let longest = self.faults.delay_max * 2 + self.persist_max * 4;
        u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that is right, a little wrong, wrong within what is tolerated, or beyond.
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

/// A clock that is wrong by minutes: always by more than the minute that is tolerated.
pub(super) fn far_clock(rng: &mut Rng) -> Clock {
    let ahead = rng.i64(70_000..=900_000);
    let offset_ms = if rng.bool() { ahead } else { -ahead };
    Clock { offset_ms, drift_ppm: rng.i64(-500..=500) }
}

/// Limits that are reached all the time: there are three or four keys, and values of a few bytes.
fn limits(rng: &mut Rng) -> StoreLimits {
    StoreLimits {
        keys_max: rng.usize(2..=4),
        bytes_max: rng.usize(14..=40),
        key_bytes_max: if rng.u8(0..4) == 0 { 6 } else { 64 },
        watches_max: rng.usize(2..=8),
        watches_per_key_max: rng.usize(1..=4),
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
        // Fast enough for an answer to be there before its record is written, were it let go.
        Mix::Durable | Mix::Takeover => {
            Faults { duplication: 0, delay_max: millis(rng.u64(2..=12)), ..mild }
        }
        Mix::Direct | Mix::Siege => Faults { loss: 0, duplication: 0, ..mild },
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
