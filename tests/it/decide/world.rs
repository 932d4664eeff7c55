//! The finite world: every combination that the rules distinguish.

use statestore_proto::hlc::{Hlc, NodeId};
use statestore_proto::message::{Command, Condition, Expiry, Operand};
use statestore_proto::time::UnixTime;

use super::Case;

/// The value that the commands carry, and a different one.
pub(super) const SAME: &str = "mine";
const OTHER: &str = "theirs";

/// The commands, by their names in the table.
pub(super) const FORMS: [&str; 9] = [
    "GET",
    "SET",
    "SET NX",
    "SET NEX",
    "SET NEX other",
    "DEL",
    "VDEL",
    "KEYNOTIFY",
    "KEYNOTIFY STOP",
];

/// One point of the world. Fences and tokens are ranks: 0, 1, 2 from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct World {
    pub(super) form: &'static str,
    pub(super) entry: Option<Held>,
    pub(super) token: Option<usize>,
    pub(super) room: bool,
    pub(super) watched: bool,
}

/// The stored entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) same: bool,
    pub(super) fence: Option<usize>,
}

impl World {
    pub(super) fn all() -> Vec<Self> {
        let ranks = || [None, Some(0), Some(1), Some(2)];
        let mut entries = vec![None];
        for same in [true, false] {
            entries.extend(ranks().map(|fence| Some(Held { same, fence })));
        }
        let mut all = Vec::new();
        for form in FORMS {
            for &entry in &entries {
                for token in ranks() {
                    for (room, watched) in
                        [(true, true), (true, false), (false, true), (false, false)]
                    {
                        all.push(Self { form, entry, token, room, watched });
                    }
                }
            }
        }
        all
    }

    pub(super) fn case(&self, with_expiry: bool) -> Case {
        let value = |same| if same { SAME } else { OTHER }.as_bytes().to_vec();
        Case {
            command: command(self.form, with_expiry),
            value: self.entry.map(|held| value(held.same)),
            fence: self.entry.and_then(|held| held.fence).map(rank),
            token: self.token.map(rank),
            full: !self.room,
            watched: self.watched,
        }
    }
}

/// Three clock values in ascending order, differing in one part each: the node, then the counter.
fn rank(rank: usize) -> Hlc {
    let (counter, node) = [(9, "m"), (9, "n"), (10, "n")][rank];
    Hlc::new(UnixTime::from_millis(5), counter, NodeId::new(node).unwrap())
}

fn command(form: &str, with_expiry: bool) -> Command<Vec<u8>> {
    let (key, value) = (b"key".to_vec(), SAME.as_bytes().to_vec());
    let condition = match form {
        "SET NX" => Condition::IfAbsent,
        "SET NEX" => Condition::IfAbsentOrEqual,
        "SET NEX other" => {
            Condition::IfAbsentOrEqualTo(Operand::new(OTHER.as_bytes().to_vec()).unwrap())
        }
        _ => Condition::Always,
    };
    let expiry = Expiry::from_millis(u64::from(with_expiry) * 1_000);
    match form {
        "GET" => Command::Get { key },
        "DEL" => Command::Del { key },
        "VDEL" => Command::VDel { key, value },
        "KEYNOTIFY" => Command::Watch { key },
        "KEYNOTIFY STOP" => Command::Unwatch { key },
        _ => Command::Set { key, value, condition, expiry },
    }
}
