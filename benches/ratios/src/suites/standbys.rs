//! A store over etcd, without a network to its clients: SETs against PUTs and against transactions
//! that a store without a leader needs, GETs of both consistencies, and the takeover by a standby.

use std::cell::RefCell;

use statestore_testkit::brokers::Etcd as Member;

use super::Suite;
use crate::bare::Failure;
use crate::engines::{Engine, Etcd, Figures, KEYS, Machine, Read, Standby, Write, leader};
use crate::report::Report;
use statestore_benches::stage::Operation;

pub(super) const SUITE: Suite = Suite {
    name: "standbys",
    about: "a store over one and three members of etcd: us per SET against PUTs and \
            compare-and-swap, GETs; takeover",
    run,
};

const PREFIXES: [&str; 2] = ["/strict/", "/leased/"];

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    for members in [1, 3] {
        let Some(cluster) = Member::cluster("standbys", members) else { return Ok(()) };
        let urls: Vec<String> = cluster.iter().map(Member::url).collect();
        let port = cluster.first().ok_or("no member")?.port();
        requests(members, &urls, port, report)?;
        if members == 1 {
            taking_over(&urls, report)?;
        }
    }
    Ok(())
}

fn requests(
    members: usize,
    urls: &[String],
    port: u16,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let [strict, leased] = PREFIXES;
    let mut strict = leader(urls, strict, Read::Strict, KEYS)?;
    let mut leased = leader(urls, leased, Read::Leased, KEYS)?;
    for store in [&mut strict, &mut leased] {
        store.run(KEYS, 512)?;
    }
    let strict = RefCell::new(strict);
    let mut puts = Etcd::at(port, Write::Blind)?;
    let mut swaps = Etcd::at(port, Write::Swap)?;
    let (rounds, seconds) = if report.is_test() { (1, 0.01) } else { (7, 0.7) };
    for in_flight in [1, 64, 512] {
        eprintln!("standbys/{members}-members/{in_flight} ({rounds} rounds)");
        let mut sides: [Box<Side<'_>>; 5] = [
            Box::new(|number| strict.borrow_mut().run(number, in_flight)),
            Box::new(|number| puts.run(number, in_flight)),
            Box::new(|number| swaps.run(number, in_flight)),
            Box::new(|number| strict.borrow_mut().measure(Operation::Get, number, in_flight)),
            Box::new(|number| leased.measure(Operation::Get, number, in_flight)),
        ];
        let [ours, puts, swaps, strictly, by_lease] = race(&mut sides, rounds, seconds, in_flight)?;
        let name = |what| format!("standbys/{members}-members/{in_flight}-in-flight/{what}");
        report.compare(&name("set"), &ours, "etcd", &puts)?;
        report.compare(&name("set"), &ours, "compare-and-swap", &swaps)?;
        report.compare(&name("get"), &strictly, "by-lease", &by_lease)?;
    }
    Ok(())
}

/// Executes this number of requests.
type Side<'a> = dyn FnMut(usize) -> Result<Figures, Failure> + 'a;

/// Microseconds per request of each side, round by round. The sides take turns.
fn race<const SIDES: usize>(
    sides: &mut [Box<Side<'_>>; SIDES],
    rounds: usize,
    seconds: f64,
    in_flight: usize,
) -> Result<[Vec<f64>; SIDES], Failure> {
    let mut each: [Vec<f64>; SIDES] = std::array::from_fn(|_| Vec::new());
    let mut numbers = [in_flight.max(20); SIDES];
    // The first round determines the number of requests that take `seconds`.
    for round in 0..=rounds {
        for ((side, number), each) in sides.iter_mut().zip(&mut numbers).zip(&mut each) {
            let figures = side(*number)?;
            *number = super::durable::requests(figures, seconds, in_flight);
            if round > 0 {
                each.push(figures.each);
            }
        }
    }
    Ok(each)
}

/// Measures a standby that reads many keys and takes over from the leader.
fn taking_over(urls: &[String], report: &mut Report<'_>) -> Result<(), Failure> {
    let keys = if report.is_test() { 1_000 } else { 1_000_000 };
    eprintln!("standbys/take-over ({keys} keys)");
    let mut full: Machine = leader(urls, "/full/", Read::Strict, keys)?;
    full.run(keys, 512)?;
    let mut standby = Standby::start(urls, "/full/", keys)?;
    report.figure("standbys/read/milliseconds", standby.wait()?)?;
    let ended = std::thread::spawn(move || drop(full));
    report.figure("standbys/take-over/milliseconds", standby.wait()?)?;
    ended.join().map_err(|_| "the leader panicked")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::Effort;

    #[test]
    fn all_sides_respond() {
        let mut out = Vec::new();
        run(&mut Report::new(Effort::TEST, &mut out)).unwrap();
        let out = String::from_utf8(out).unwrap();
        // Three lines for each of three loads over each of two clusters, and two figures. Without
        // etcd the report is empty.
        assert!([0, 20].contains(&out.lines().count()), "{out}");
    }
}
