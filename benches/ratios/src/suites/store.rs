//! The store, from a PUBLISH to the encoded response, against a hash map that looks up or inserts
//! and copies the response. Pages of SCAN against an ordered set.

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::ops::Bound;

use bytes::Bytes;
use statestore_proto::message::{Dialect, Page, PageEncoder, Reply, Scan};

use super::Suite;
use crate::bare::Failure;
use crate::race::Contestant;
use crate::report::Report;
use statestore_benches::stage::{
    KEY_LEN, Operation, PAGE_LEN, Stage, VALUE_LEN, key, scattered, value,
};

pub(super) const SUITE: Suite = Suite {
    name: "store",
    about: "requests to the store against a hash map, in ns; bytes per key",
    run,
};

const SIZES: [(&str, usize); 4] =
    [("1e2", 100), ("1e3", 1_000), ("1e4", 10_000), ("1e6", 1_000_000)];

fn run(report: &mut Report<'_>) -> Result<(), Failure> {
    let (most_name, most) = SIZES[SIZES.len() - 1];
    let keys = if report.is_test() { 1_000 } else { most };
    // First, while the heap is small.
    if let Some(bytes) = bytes_per_key(keys) {
        report.figure(&format!("store/bytes-per-key/{most_name}keys"), bytes)?;
    }
    for (name, keys) in SIZES {
        if report.is_test() && keys > 1_000 {
            continue;
        }
        let (mut stage, mut map) = (Stage::new(keys, 0), bare_map(keys));
        for (verb, operations) in [
            ("get", &[Operation::Get][..]),
            ("set", &[Operation::Set]),
            ("set-px", &[Operation::SetPx]),
        ] {
            compare(
                &format!("store/{verb}/{name}keys"),
                operations,
                keys,
                (&mut stage, &mut map),
                report,
            )?;
        }
        compare(
            &format!("store/del+set/{name}keys"),
            &[Operation::Del, Operation::Set],
            keys,
            (&mut stage, &mut map),
            report,
        )?;
        if keys >= 10_000 || (report.is_test() && keys > 2 * PAGE_LEN) {
            compare_pages(name, keys, &mut stage, report)?;
        }
    }
    for (watchers, keys) in [(1, 100), (100, 100)] {
        let (mut stage, mut map) = (Stage::new(keys, watchers), bare_map(keys));
        let name = format!("store/set/1e2keys/{watchers}watchers");
        compare(&name, &[Operation::Set], keys, (&mut stage, &mut map), report)?;
    }
    Ok(())
}

/// Compares requests to the store with the minimum that any store must do.
fn compare(
    name: &str,
    operations: &[Operation],
    keys: usize,
    (stage, map): (&mut Stage, &mut HashMap<Vec<u8>, Vec<u8>>),
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let requests: Vec<Vec<Bytes>> =
        operations.iter().map(|operation| Stage::requests(*operation, keys)).collect();
    let numbers: Vec<Vec<u8>> = scattered(keys).map(key).collect();
    for operation in operations {
        let expected = bare(map, *operation, &numbers[0]);
        let found = stage.run(&Stage::requests(*operation, keys)[0]);
        assert_eq!(found.as_deref(), Some(&expected[..]), "{name} {operation:?}");
    }
    let (mut ours, mut theirs) = (0, 0);
    let store = Contestant::new("ours", || {
        ours = (ours + 1) % numbers.len();
        let turn = ours;
        requests.iter().map(|requests| black_box(stage.run(black_box(&requests[turn])))).last()
    });
    let bare_map = Contestant::new("bare-map", || {
        theirs = (theirs + 1) % numbers.len();
        let turn = theirs;
        operations
            .iter()
            .map(|operation| black_box(bare(map, *operation, black_box(&numbers[turn]))))
            .last()
    });
    report.race(name, store, [bare_map])?;
    Ok(())
}

/// Compares pages of a listing with ranges of an ordered set. Also measures pages without a match.
fn compare_pages(
    name: &str,
    keys: usize,
    stage: &mut Stage,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let ask = |pattern: &[u8], token: Option<&[u8]>| Bytes::from(Scan { pattern, token }.encode());
    let mut requests = vec![ask(b"*", None)];
    let mut starts = vec![Vec::new()];
    while let Some(page) = stage.run(&requests[requests.len() - 1]) {
        let page = Page::decode(&page)?;
        starts.push(page.keys().last().map(<[u8]>::to_vec).unwrap_or_default());
        match page.token() {
            Some(token) => requests.push(ask(b"*", Some(token))),
            None => break,
        }
    }
    assert_eq!(requests.len(), keys.div_ceil(PAGE_LEN));
    let order: Vec<usize> = scattered(requests.len()).collect();
    let set: BTreeSet<Vec<u8>> = (0..keys).map(key).collect();
    let bare = |start: &Vec<u8>| {
        let above = (Bound::Excluded(start), Bound::Unbounded);
        let keys: Vec<&[u8]> =
            set.range::<Vec<u8>, _>(above).take(PAGE_LEN).map(Vec::as_slice).collect();
        PageEncoder { keys: &keys, token: None }.encode()
    };
    let page = stage.run(&requests[1]);
    let expected = bare(&starts[1]);
    assert!(Page::decode(&page.unwrap_or_default())?.keys().eq(Page::decode(&expected)?.keys()));
    let (mut ours, mut theirs) = (0, 0);
    let pages = Contestant::new("ours", || {
        ours = (ours + 1) % order.len();
        black_box(stage.run(black_box(&requests[order[ours]])))
    });
    let ranges = Contestant::new("ordered-set", || {
        theirs = (theirs + 1) % order.len();
        black_box(bare(black_box(&starts[order[theirs]])))
    });
    report.race(&format!("store/scan-page/{name}keys"), pages, [ranges])?;
    // A page without a match is the longest that one request can delay all others.
    let mut token = None;
    let nothing = Contestant::new("ours", || {
        let page = stage.run(black_box(&ask(b"*nothing", token.as_deref())));
        let page = page.unwrap_or_default();
        token = Page::decode(&page).ok().and_then(|page| page.token().map(<[u8]>::to_vec));
    });
    report.time(&format!("store/scan-nothing/{name}keys"), nothing)?;
    Ok(())
}

fn bare_map(keys: usize) -> HashMap<Vec<u8>, Vec<u8>> {
    let reply = Reply::Value(value()).encode(Dialect::Deployed);
    (0..keys).map(|number| (key(number), reply.clone())).collect()
}

/// The same lookup, insertion or removal, and a copy of the response.
fn bare(map: &mut HashMap<Vec<u8>, Vec<u8>>, operation: Operation, key: &[u8]) -> Vec<u8> {
    match operation {
        Operation::Get => map.get(key).cloned().unwrap_or_default(),
        Operation::Set | Operation::SetPx => {
            let reply = Reply::Value([b'v'; VALUE_LEN]).encode(Dialect::Deployed);
            map.insert(key.to_vec(), reply);
            b"+OK\r\n".to_vec()
        }
        Operation::Del => {
            let removed = map.remove(key).is_some();
            if removed { b":1\r\n".to_vec() } else { b":0\r\n".to_vec() }
        }
    }
}

/// Returns the resident bytes per key, without key and value. `None` if the system does not report
/// them.
fn bytes_per_key(keys: usize) -> Option<f64> {
    let before = resident()?;
    let stage = Stage::new(keys, 0);
    let after = resident()?;
    drop(black_box(stage));
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = after.saturating_sub(before) as f64 / keys as f64;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let own = (KEY_LEN + VALUE_LEN) as f64;
    Some(each - own)
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<usize>().ok().map(|kilobytes| kilobytes * 1_024)
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
