//! Selects the faults of packets. The fault file and the seed alone determine them.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use statestore_mqtt::Kind;
use statestore_mqtt::topic::Filter;

/// Maximum number of faults in a file. Each packet is compared with all of them.
const FAULTS_MAX: usize = 64;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Direction {
    ToBroker,
    ToClient,
}

impl Direction {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::ToBroker => "to-broker",
            Self::ToClient => "to-client",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FaultKind {
    Drop,
    Repeat,
    Hold,
    Cut,
    CutInside,
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PacketFilter {
    Publish,
    Puback,
    Any,
}

/// One `[[fault]]` of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Fault {
    kind: FaultKind,
    packet: Option<PacketFilter>,
    direction: Option<Direction>,
    topic: Option<String>,
    #[serde(default = "always")]
    probability: f64,
    #[serde(rename = "for", default, deserialize_with = "duration")]
    hold_time: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    cut_after: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    from: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    until: Option<Duration>,
}

const fn always() -> f64 {
    1.0
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map(Some).map_err(D::Error::custom)
}

/// The fault file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    #[serde(default, rename = "fault")]
    faults: Vec<Fault>,
}

/// The properties of a packet that faults depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) kind: Kind,
    pub(super) direction: Direction,
    /// Topic of a PUBLISH.
    pub(super) topic: Option<&'a str>,
    /// Time since the start of the proxy.
    pub(super) at: Duration,
}

/// The action of the proxy for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Forward the packet.
    Pass,
    /// Discard the packet, and cut the connection after this time.
    Drop(Duration),
    /// Forward the packet twice.
    Repeat,
    /// Forward the packet after this time. Later packets of the same direction wait.
    Hold(Duration),
    /// Close the connection before the packet.
    Cut,
    /// Forward the first half of the packet, then close the connection.
    CutInside,
}

impl Action {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop(_) => "drop",
            Self::Repeat => "repeat",
            Self::Hold(_) => "hold",
            Self::Cut => "cut",
            Self::CutInside => "cut-inside",
        }
    }
}

impl Plan {
    /// Parses a fault file.
    ///
    /// # Errors
    /// A text with the line or the number of the invalid fault.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let plan: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
            format!("line {line}: {}", error.message())
        })?;
        if plan.faults.len() > FAULTS_MAX {
            return Err(format!("{} faults, and the maximum is {FAULTS_MAX}", plan.faults.len()));
        }
        for (number, fault) in (1..).zip(&plan.faults) {
            let wrong = |why: &str| Err(format!("fault {number}: {why}"));
            if !(0.0..=1.0).contains(&fault.probability) {
                return wrong("`probability` must be from 0 to 1");
            }
            if (fault.kind == FaultKind::Hold) != fault.hold_time.is_some() {
                return wrong("hold requires `for`, and no other kind allows it");
            }
            if fault.cut_after.is_some() && fault.kind != FaultKind::Drop {
                return wrong("`cut-after` requires kind = \"drop\"");
            }
            if fault.topic.as_ref().is_some_and(|topic| Filter::parse(topic).is_none()) {
                return wrong("`topic` is not a topic filter");
            }
            if fault.topic.is_some() && !matches!(fault.packet_filter(), PacketFilter::Publish) {
                return wrong("`topic` requires packet = \"publish\"");
            }
            if fault.kind == FaultKind::Refuse
                && (fault.packet.is_some() || fault.direction.is_some() || fault.topic.is_some())
            {
                return wrong(
                    "refuse applies to connections: packet, direction and topic are not allowed",
                );
            }
        }
        Ok(plan)
    }
}

impl Fault {
    fn packet_filter(&self) -> PacketFilter {
        self.packet.unwrap_or(match (self.kind, &self.topic) {
            (FaultKind::Drop | FaultKind::Repeat, _) | (_, Some(_)) => PacketFilter::Publish,
            _ => PacketFilter::Any,
        })
    }

    fn is_active(&self, at: Duration) -> bool {
        self.from.is_none_or(|from| from <= at) && self.until.is_none_or(|until| at < until)
    }

    fn matches(&self, packet: &Packet<'_>) -> bool {
        let is_kind = match self.packet_filter() {
            PacketFilter::Publish => packet.kind == Kind::Publish,
            PacketFilter::Puback => packet.kind == Kind::PubAck,
            PacketFilter::Any => true,
        };
        let is_topic = self.topic.as_deref().is_none_or(|filter| {
            let filter = Filter::parse(filter);
            packet.topic.is_some_and(|topic| filter.is_some_and(|filter| filter.matches(topic)))
        });
        is_kind
            && is_topic
            && self.is_active(packet.at)
            && self.direction.is_none_or(|direction| direction == packet.direction)
    }
}

/// Decides about the packets of one direction of one connection.
#[derive(Debug)]
pub(super) struct FaultInjector {
    plan: Plan,
    rng: fastrand::Rng,
}

impl FaultInjector {
    pub(super) fn new(plan: &Plan, seed: u64, connection: u64, direction: Direction) -> Self {
        let direction = u64::from(direction == Direction::ToClient);
        // Similar seeds would produce similar first numbers.
        let mixed = (connection * 2 + direction + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { plan: plan.clone(), rng: fastrand::Rng::with_seed(seed ^ mixed) }
    }

    /// Returns the action for the next packet: that of the first fault that occurs.
    pub(super) fn next_action(&mut self, packet: &Packet<'_>) -> Action {
        let mut action = Action::Pass;
        for fault in &self.plan.faults {
            // Each fault has a random number for each packet, so faults are independent.
            let random = self.rng.f64();
            let occurs = random < fault.probability && fault.matches(packet);
            if occurs && action == Action::Pass {
                action = match fault.kind {
                    FaultKind::Drop => {
                        Action::Drop(fault.cut_after.unwrap_or(Duration::from_secs(2)))
                    }
                    FaultKind::Repeat => Action::Repeat,
                    FaultKind::Hold => Action::Hold(fault.hold_time.unwrap_or_default()),
                    FaultKind::Cut => Action::Cut,
                    FaultKind::CutInside => Action::CutInside,
                    FaultKind::Refuse => Action::Pass,
                };
            }
        }
        action
    }

    /// Returns whether the connection is refused.
    pub(super) fn is_refused(&mut self, at: Duration) -> bool {
        let mut is_refused = false;
        for fault in self.plan.faults.iter().filter(|fault| fault.kind == FaultKind::Refuse) {
            is_refused |= self.rng.f64() < fault.probability && fault.is_active(at);
        }
        is_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: Kind, direction: Direction, topic: Option<&str>, at: u64) -> Packet<'_> {
        Packet { kind, direction, topic, at: Duration::from_secs(at) }
    }

    fn injector(text: &str) -> FaultInjector {
        FaultInjector::new(&Plan::parse(text).unwrap(), 7, 1, Direction::ToBroker)
    }

    #[test]
    fn fault_applies_only_to_matching_packets() {
        let mut injector = injector(
            "[[fault]]\nkind = \"drop\"\ndirection = \"to-broker\"\ntopic = \"a/#\"\nfrom = \"5s\"\nuntil = \"9s\"\ncut-after = \"1s\"\n\
             [[fault]]\nkind = \"repeat\"\npacket = \"puback\"\n\
             [[fault]]\nkind = \"hold\"\nfor = \"20ms\"\ntopic = \"b\"\n",
        );
        let dropped = Action::Drop(Duration::from_secs(1));
        let held = Action::Hold(Duration::from_millis(20));
        use Direction::{ToBroker, ToClient};
        for (kind, direction, topic, at, action) in [
            (Kind::Publish, ToBroker, Some("a/b"), 5, dropped),
            (Kind::Publish, ToBroker, Some("a/b"), 4, Action::Pass),
            (Kind::Publish, ToBroker, Some("a/b"), 9, Action::Pass),
            (Kind::Publish, ToClient, Some("a/b"), 5, Action::Pass),
            (Kind::Publish, ToClient, Some("b"), 5, held),
            (Kind::Publish, ToBroker, Some("c"), 5, Action::Pass),
            (Kind::PubAck, ToClient, None, 5, Action::Repeat),
            (Kind::PingReq, ToBroker, None, 5, Action::Pass),
        ] {
            assert_eq!(
                injector.next_action(&packet(kind, direction, topic, at)),
                action,
                "{kind:?} {topic:?} {at}"
            );
        }
        assert!(!injector.is_refused(Duration::ZERO));
    }

    #[test]
    fn seed_determines_faults() {
        let plan = Plan::parse("[[fault]]\nkind = \"drop\"\nprobability = 0.3\n[[fault]]\nkind = \"refuse\"\nprobability = 0.5\n").unwrap();
        let actions = |seed, connection, direction| -> Vec<Action> {
            let mut injector = FaultInjector::new(&plan, seed, connection, direction);
            (0..1_000)
                .map(|_| injector.next_action(&packet(Kind::Publish, direction, Some("t"), 1)))
                .collect()
        };
        let first = actions(1, 1, Direction::ToBroker);
        assert_eq!(first, actions(1, 1, Direction::ToBroker));
        for other in [
            actions(2, 1, Direction::ToBroker),
            actions(1, 2, Direction::ToBroker),
            actions(1, 1, Direction::ToClient),
        ] {
            assert_ne!(first, other);
        }
        let dropped = first.iter().filter(|action| **action != Action::Pass).count();
        assert!((200..400).contains(&dropped), "{dropped} of 1,000 at 0.3");
        let refused = (0..1_000)
            .filter(|number| {
                FaultInjector::new(&plan, 1, *number, Direction::ToBroker)
                    .is_refused(Duration::ZERO)
            })
            .count();
        assert!((400..600).contains(&refused), "{refused} of 1,000 at 0.5");
    }

    #[test]
    fn invalid_file_is_rejected_with_its_line() {
        for (text, expected) in [
            ("[[fault]]\nkind = \"lose\"\n", "line 2: "),
            ("[[fault]]\nkind = \"drop\"\nprobability = 1.5\n", "fault 1: `probability`"),
            ("[[fault]]\nkind = \"drop\"\nprob = 1\n", "line 3: unknown field"),
            ("[[fault]]\nkind = \"hold\"\n", "fault 1: hold requires `for`"),
            ("[[fault]]\nkind = \"cut\"\nfor = \"1s\"\n", "fault 1: hold requires `for`"),
            ("[[fault]]\nkind = \"cut\"\ncut-after = \"1s\"\n", "fault 1: `cut-after`"),
            ("[[fault]]\nkind = \"hold\"\nfor = \"soon\"\n", "line 3: "),
            ("[[fault]]\nkind = \"drop\"\ntopic = \"a#\"\n", "not a topic filter"),
            (
                "[[fault]]\nkind = \"drop\"\npacket = \"puback\"\ntopic = \"a\"\n",
                "`topic` requires",
            ),
            ("[[fault]]\nkind = \"refuse\"\npacket = \"any\"\n", "refuse applies to connections"),
            (&"[[fault]]\nkind = \"drop\"\n".repeat(65), "the maximum is 64"),
            ("faults = 1\n", "line 1: unknown field"),
        ] {
            let error = Plan::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(Plan::parse("").unwrap().faults.is_empty());
    }
}
