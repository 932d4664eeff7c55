//! Checkers of a history. Each one proves one property and uses only the data that it needs.

pub mod effects;
pub mod fencing;
pub mod linear;
pub mod versions;
pub mod watches;

use super::{Check, Mix, Report, Violation};

/// Every check, run independently of the others.
pub(super) fn all(report: &mut Report) {
    let Report { history, wire, truth, scenario, .. } = &*report;
    let quota = scenario.mix == Mix::Quota;
    // No order explains a value that was lost.
    let linear = if wire.losses.is_empty() {
        linear::check(history, truth.log(), truth.restarts())
    } else {
        Ok(())
    };
    let found = [
        (Check::Store, versions::conformance(wire, quota)),
        (Check::Linear, linear),
        (Check::Watches, watches::check(history, truth, watches::Allowance::of(scenario))),
        (Check::Watches, watches::quiet_after_stop(wire, scenario.mix.delivery())),
        (Check::Effects, effects::check(history, wire)),
        (Check::Fencing, fencing::check(history, truth)),
        (Check::Versions, versions::check(wire)),
    ];
    for (check, result) in found {
        report.violations.extend(result.err().map(|text| Violation::new(check, text)));
    }
}
