//! The simulator: how many simulated steps a second one thread does, history checks included.

use statestore_sim::runs::{self, Mix};

use super::Suite;
use crate::bare::Failure;
use crate::race::stopwatch;
use crate::report::Report;

pub(super) const SUITE: Suite = Suite {
    name: "sim",
    about: "simulated steps per second, by mix of faults, with all checks",
    run,
};

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let seeds = if report.is_test() { 1 } else { 40 };
    for mix in Mix::ALL {
        eprintln!("sim/{mix:?} ({seeds} seeds)");
        let (steps, spent) = stopwatch(|| runs::run_all(mix.seeds(seeds), runs::STEPS));
        let steps =
            steps.map_err(|report| format!("seed {} breaks a promise", report.scenario.seed))?;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let rate = steps as f64 / spent.as_secs_f64();
        report.figure(&format!("sim/steps-per-second/{mix:?}").to_lowercase(), rate)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn every_mix_runs_clean() {
        run(&mut Report::new(Effort::TEST, &mut Vec::new())).unwrap();
    }
}
