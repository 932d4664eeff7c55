//! What a seed decides before a run begins.

use std::time::Duration;

use fastrand::Rng;
use statestore_loopback::{Clock, Faults};

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
}

impl Mix {
    /// All of them, in the order in which seeds take turns.
    pub const ALL: [Self; 5] =
        [Self::Faultless, Self::InOrder, Self::Reordered, Self::Heavy, Self::StoreLink];

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
            Self::Faultless | Self::InOrder => Delivery::InOrder,
            Self::Reordered | Self::Heavy => Delivery::Reordered,
            Self::StoreLink => Delivery::Broken,
        }
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
        Self {
            seed,
            mix,
            clients,
            plain_keys: rng.usize(1..=2),
            faults: faults(&mut rng, mix),
            store_clock: clock(&mut rng, wrong_store),
            reconnect_after: Duration::from_millis(rng.u64(1..=400)),
            churn: rng.u16(10..=100),
        }
    }

    /// No message is on its way to a connected client for longer, from sender to receiver.
    #[must_use]
    pub fn transit_max(&self) -> u64 {
        u64::try_from(self.faults.delay_max.as_millis()).unwrap_or(u64::MAX) * 2
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
        Mix::InOrder => mild,
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
