//! The decision table `tests/vectors/decisions.txt`: generated from `decide`, committed, compared.

use std::fmt::Write;

use statestore_proto::message::Reply;
use statestore_proto::rules::{Change, ReplyVersion};
use statestore_testkit::vectors::folder;

use super::world::{FORMS, Held, World};

const HEAD: &str = "\
# What a store does with a command whose grammar, authorization and timestamps are in order.
#
# stored      whether the key has a value that has not expired
# fence       whether that value was written with a fencing token
# token       the request's `__ft` against that fence; without a fence only whether there is one
# value       the stored value against the value in the command; `NEX other` names a value that is not the one to be set
# quota       whether the quota allows what the command would add
# registered  whether the requester is registered for notifications of the key
# __ts        the version that goes with the reply
#
# `-` does not exist, `any` makes no difference. Columns are two blanks apart at least.
#
";

const COLUMNS: [&str; 10] = [
    "command",
    "stored",
    "fence",
    "token",
    "value",
    "quota",
    "registered",
    "change",
    "__ts",
    "reply",
];

/// The columns that describe a situation: all but the command and the outcome.
const INPUTS: usize = 6;

type Outcome = [String; 3];

/// A line of the table: the situation and the outcome.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    inputs: Vec<String>,
    outcome: Outcome,
}

/// The choices of the next column, given those before it.
fn choices(before: &[&'static str]) -> Vec<&'static str> {
    match *before {
        [] => vec!["absent", "present"],
        ["absent"] | ["absent", _, _] => vec!["-"],
        ["present"] => vec!["none", "set"],
        [_, "set"] => vec!["none", "lower", "equal", "higher"],
        [_, _] => vec!["none", "some"],
        [_, _, _] => vec!["same", "other"],
        _ => vec!["yes", "no"],
    }
}

/// Returns whether these choices describe the point of the world.
fn lies(world: &World, at: &[&str]) -> bool {
    let fence = world.entry.and_then(|held| held.fence);
    let token = match (fence, world.token) {
        (_, None) => "none",
        (None, Some(_)) => "some",
        (Some(fence), Some(token)) if token < fence => "lower",
        (Some(fence), Some(token)) if token == fence => "equal",
        (Some(_), Some(_)) => "higher",
    };
    let held = |text: fn(Held) -> &'static str| world.entry.map_or("-", text);
    let flag = |flag| if flag { "yes" } else { "no" };
    let place = [
        if world.entry.is_some() { "present" } else { "absent" },
        held(|held| if held.fence.is_some() { "set" } else { "none" }),
        token,
        held(|held| if held.same { "same" } else { "other" }),
        flag(world.room),
        flag(world.watched),
    ];
    place == at
}

fn outcome(world: &World) -> Outcome {
    let case = world.case(false);
    let decision = match case.decide() {
        Ok(decision) => decision,
        Err(rejected) => {
            let reply = format!("error: {}", rejected.refusal());
            return ["none".into(), "none".into(), reply];
        }
    };
    let change = match (decision.change, world.token) {
        (Change::None, _) => "none",
        (Change::Put, None) => "store, no fence",
        (Change::Put, Some(_)) => "store, fence = token",
        (Change::Remove, _) if case.fence.is_none() => "remove",
        (Change::Remove, _) => "remove with its fence",
        (Change::Register, _) => "watch",
        (Change::Unregister, _) => "end watching",
    };
    let stamp = match decision.version {
        ReplyVersion::None => "none",
        ReplyVersion::Stored => "stored",
        ReplyVersion::New => "new",
    };
    let reply = match decision.reply {
        Reply::Done => "done".into(),
        Reply::NotApplied => "not applied".into(),
        Reply::Value(_) => "the value".into(),
        Reply::Absent => "absent".into(),
        Reply::Removed => "1 removed".into(),
        Reply::NothingRemoved => "0 removed".into(),
        Reply::NotWatched => "0 watched".into(),
        Reply::Error(error) => format!("error: {error}"),
    };
    [change.into(), stamp.into(), reply]
}

/// The lines below these choices; choices with equal lines are merged.
fn rows(worlds: &[World], at: &[&'static str]) -> Vec<Row> {
    if at.len() == INPUTS {
        let mut outcomes: Vec<Outcome> =
            worlds.iter().filter(|world| lies(world, at)).map(outcome).collect();
        outcomes.dedup();
        let [outcome] = outcomes.as_slice() else { panic!("{at:?} has not one outcome") };
        return vec![Row { inputs: Vec::new(), outcome: outcome.clone() }];
    }
    let choices = choices(at);
    let mut groups: Vec<(Vec<&str>, Vec<Row>)> = Vec::new();
    for &choice in &choices {
        let below = rows(worlds, &[at, &[choice]].concat());
        match groups.iter_mut().find(|(_, other)| *other == below) {
            Some((labels, _)) => labels.push(choice),
            None => groups.push((vec![choice], below)),
        }
    }
    let mut all = Vec::new();
    for (labels, below) in groups {
        let label = if labels.len() == choices.len() && labels.len() > 1 {
            "any".into()
        } else {
            labels.join("/")
        };
        for mut row in below {
            row.inputs.insert(0, label.clone());
            all.push(row);
        }
    }
    all
}

/// The whole file.
fn table() -> String {
    let worlds = World::all();
    let mut lines: Vec<Vec<String>> = vec![COLUMNS.map(str::to_owned).to_vec()];
    for form in FORMS {
        let worlds: Vec<World> =
            worlds.iter().filter(|world| world.form == form).copied().collect();
        lines.push(Vec::new());
        for row in rows(&worlds, &[]) {
            let line = std::iter::once(form.to_owned()).chain(row.inputs).chain(row.outcome);
            lines.push(line.collect());
        }
    }
    let width =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..COLUMNS.len()).filter_map(width).collect();
    let mut text = HEAD.to_owned();
    for line in &lines {
        let mut padded = String::new();
        for (field, width) in line.iter().zip(&widths) {
            write!(padded, "{field:width$}  ").unwrap();
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

/// Lines that only one of two texts has.
fn difference(committed: &str, found: &str) -> Vec<String> {
    let missing = |line: &&str, other: &str| !other.lines().any(|there| there == *line);
    let gone =
        committed.lines().filter(|line| missing(line, found)).map(|line| format!("- {line}"));
    let new = found.lines().filter(|line| missing(line, committed)).map(|line| format!("+ {line}"));
    gone.chain(new).collect()
}

#[test]
fn committed_decision_table_equals_the_decisions_of_decide() {
    let (path, found) = (folder().join("decisions.txt"), table());
    #[expect(clippy::disallowed_methods, reason = "the author of a change requests the update")]
    if std::env::var_os("STATESTORE_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == found,
        "tests/vectors/decisions.txt is not what decide does:\n{}\n\nIf that is intended, regenerate it and review \
         the difference:\nSTATESTORE_BLESS=1 cargo test -p statestore-tests decision_table",
        difference(&committed, &found).join("\n"),
    );
    assert!(found.lines().count() > 60, "the table covers the world");
}

#[test]
fn difference_lists_the_lines_of_both_sides() {
    assert_eq!(difference("a\nb\n", "a\nc\n"), ["- b", "+ c"]);
    assert!(difference("a\n", "a\n").is_empty());
}
