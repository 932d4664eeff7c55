//! Clock values, and values issued by clocks.

use std::cmp::Ordering;

use statestore_proto::hlc::{
    Hlc, HlcRef, HybridClock, NodeId, NodeIdError, ParseHlcError, ParseHlcErrorKind,
};
use statestore_proto::time::UnixTime;

use super::vectors;
use crate::support::{Writers, same};

#[test]
fn clock_values_are_parsed_and_written_as_in_the_file() {
    vectors("hlc.txt").run(20, |case| {
        let (text, bare) = (case.string("text")?, case.string("bare")?);
        let node = case.string("node")?;
        let expected = (case.value::<u64>("wall")?, case.value::<u64>("counter")?, node.as_str());
        let borrowed = HlcRef::parse(&text).map_err(|error| error.to_string())?;
        let owned: Hlc = text.parse().map_err(|error: ParseHlcError| error.to_string())?;
        let parts = (borrowed.wall().as_millis(), borrowed.counter(), borrowed.node().as_str());
        same("borrowed", &parts, &expected)?;
        let parts = (owned.wall().as_millis(), owned.counter(), owned.node().as_str());
        same("owned", &parts, &expected)?;
        same("display", &owned.to_string(), &bare)?;
        same("display borrowed", &borrowed.to_string(), &bare)?;
        let encode_into = |out: &mut [u8]| borrowed.encode_into(out);
        let encode = borrowed.encode().into_bytes();
        Writers { encoded_len: owned.encoded_len(), encode, encode_into }.check(bare.as_bytes())
    });
}

#[test]
fn malformed_clock_values_are_rejected_with_the_error_in_the_file() {
    vectors("hlc-refused.txt").run(28, |case| {
        let text = case.string("text")?;
        let expected = (case.text("problem")?, case.value::<usize>("at")?);
        let found = |error: ParseHlcError| (word(error.kind), error.at);
        same("borrowed", &HlcRef::parse(&text).map_err(found), &Err(expected))?;
        same("owned", &text.parse::<Hlc>().map_err(found), &Err(expected))
    });
}

fn word(kind: ParseHlcErrorKind) -> &'static str {
    match kind {
        ParseHlcErrorKind::MissingPart => "missing-part",
        ParseHlcErrorKind::NotDecimal => "not-decimal",
        ParseHlcErrorKind::Overflow => "overflow",
        ParseHlcErrorKind::Node(NodeIdError::Empty) => "node-empty",
        ParseHlcErrorKind::Node(NodeIdError::Colon) => "node-colon",
        ParseHlcErrorKind::Node(NodeIdError::TooLong) => "node-too-long",
        _ => "another problem",
    }
}

#[test]
fn clock_values_are_ordered_as_in_the_file() {
    let file = vectors("hlc-order.txt");
    let mut ranks: Vec<(usize, String)> = Vec::new();
    for case in file.cases() {
        let last = ranks.last().map_or(0, |(rank, _)| *rank);
        let rank = match case.text("relation").unwrap() {
            "first" | "equal" => last,
            "less" => last + 1,
            other => panic!("{}: unknown relation {other}", case.place()),
        };
        ranks.push((rank, case.string("text").unwrap()));
    }
    file.run(20, |case| {
        let text = case.string("text")?;
        let mine = ranks.iter().find(|(_, other)| *other == text).ok_or("not ranked")?.0;
        for (rank, other) in &ranks {
            let order = parse(&text)?.cmp(&parse(other)?);
            same(&format!("order against {other}"), &order, &mine.cmp(rank))?;
            same("equality", &(parse(&text)? == parse(other)?), &(order == Ordering::Equal))?;
        }
        Ok(())
    });
}

fn parse(text: &str) -> Result<HlcRef<'_>, String> {
    HlcRef::parse(text).map_err(|error| format!("{text}: {error}"))
}

#[test]
fn clocks_issue_the_values_in_the_file() {
    vectors("hlc-receive.txt").run(35, |case| {
        let mut clock = clock_at(parse(case.text("own")?)?)?;
        let now = UnixTime::from_millis(case.value("now")?);
        let issued = match case.optional("other")? {
            Some(other) => clock.receive(now, parse(other)?),
            None => clock.tick(now),
        };
        let found = match &issued {
            Ok(issued) => issued.to_string(),
            Err(drift) => format!("drift {}", drift.ahead.as_millis()),
        };
        same("issued", &found.as_str(), &case.text("result")?)?;
        let last = if issued.is_ok() { case.text("result")? } else { case.text("own")? };
        same("last", &clock.last().to_string().as_str(), &last)
    });
}

/// A clock with this last value.
fn clock_at(own: HlcRef<'_>) -> Result<HybridClock, String> {
    let node = NodeId::new(own.node().as_str()).map_err(|error| error.to_string())?;
    let mut clock = HybridClock::new(node);
    if own.counter() > 0 {
        let before = Hlc::new(own.wall(), own.counter() - 1, *own.node());
        clock.receive(own.wall(), before).map_err(|error| error.to_string())?;
    } else if own.wall().as_millis() > 0 {
        clock.tick(own.wall()).map_err(|error| error.to_string())?;
    }
    same("the clock before", &clock.last().borrowed(), &own)?;
    Ok(clock)
}
