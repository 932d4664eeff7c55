//! The text form of clock values, against a simple version with the standard library alone.

use std::hint::black_box;

use statestore_proto::hlc::{Hlc, HlcRef};

use super::Suite;
use crate::bare::Failure;
use crate::race::Contestant;
use crate::report::Report;

pub(super) const SUITE: Suite =
    Suite { name: "hlc", about: "text of clock values against the standard library, in ns", run };

const BARE: &str = "1696374425000:1:StateStore";
const PADDED: &str = "001696374425000:00001:StateStore";

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    for (name, text) in [("hlc/parse/bare", BARE), ("hlc/parse/padded", PADDED)] {
        let hlc = HlcRef::parse(text)?;
        let parts = (hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str());
        assert_eq!(plain_parse(text), Some(parts), "both sides read {text}");
        report.race(
            name,
            Contestant::new("ours", || HlcRef::parse(black_box(text))),
            [Contestant::new("std", || plain_parse(black_box(text)))],
        )?;
    }

    let hlc: Hlc = PADDED.parse()?;
    assert_eq!((hlc.encode().as_str(), plain_format(&hlc).as_str()), (BARE, BARE));
    report.race(
        "hlc/encode",
        Contestant::new("ours", || black_box(&hlc).encode()),
        [Contestant::new("std", || plain_format(black_box(&hlc)))],
    )?;
    Ok(())
}

/// Accepts numbers with a sign and an empty node id, so it checks less than we do.
fn plain_parse(text: &str) -> Option<(u64, u64, &str)> {
    let mut parts = text.splitn(3, ':');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?))
}

fn plain_format(hlc: &Hlc) -> String {
    format!("{}:{}:{}", hlc.wall().as_millis(), hlc.counter(), hlc.node().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn both_sides_agree() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
