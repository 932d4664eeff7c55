//! Clock values: text in, text out, order, and the receive rule.

use std::cmp::Ordering;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use statestore_proto::hlc::{Hlc, HlcRef, HybridClock, NodeId, ParseHlcError};
use statestore_proto::time::UnixTime;

const BARE: &str = "1696374425000:1:StateStore";
const PADDED: &str = "001696374425000:00001:StateStore";

fn text(criterion: &mut Criterion) {
    let hlc = parsed(BARE);
    assert_eq!((hlc.wall().as_millis(), hlc.counter()), (1_696_374_425_000, 1));
    assert_eq!(hlc, parsed(PADDED), "both forms are read");
    for (name, text) in [("parse/bare", BARE), ("parse/padded", PADDED)] {
        criterion.bench_function(name, |bencher| bencher.iter(|| HlcRef::parse(black_box(text))));
    }
    criterion.bench_function("parse/owned", |bencher| {
        bencher.iter(|| black_box(PADDED).parse::<Hlc>());
    });

    let mut out = [0; 64];
    assert_eq!(hlc.encode(), BARE);
    assert_eq!(hlc.encode_into(&mut out).map(|len| &out[..len]), Ok(BARE.as_bytes()));
    criterion.bench_function("format/string", |bencher| bencher.iter(|| black_box(&hlc).encode()));
    criterion.bench_function("format/into", |bencher| {
        bencher.iter(|| black_box(&hlc).encode_into(black_box(&mut out)));
    });
}

fn order(criterion: &mut Criterion) {
    for (name, less, greater) in [
        ("compare/wall", BARE, "1696374425001:0:StateStore"),
        ("compare/counter", BARE, "1696374425000:10:StateStore"),
        ("compare/node", BARE, "1696374425000:1:StateStore-2"),
    ] {
        let (less, greater) = (parsed(less), parsed(greater));
        assert_eq!(less.cmp(&greater), Ordering::Less);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| black_box(&less).cmp(black_box(&greater)));
        });
    }
}

fn receive(criterion: &mut Criterion) {
    let Ok(node) = NodeId::new("StateStore") else { unreachable!("a node id without a colon") };
    let (now, request) =
        (UnixTime::from_millis(1_696_374_425_000), parsed("1696374425000:0:CLIENT"));
    let clock = HybridClock::new(node);
    assert_eq!(clock.clone().receive(now, request.borrowed()), Ok(parsed(BARE)));
    // Each iteration starts with a new clock, because an exhausted counter would change later ones.
    criterion.bench_function("receive", |bencher| {
        bencher.iter(|| {
            black_box(&clock).clone().receive(black_box(now), black_box(&request).borrowed())
        });
    });
}

fn parsed(text: &str) -> Hlc {
    let parsed: Result<Hlc, ParseHlcError> = text.parse();
    parsed.unwrap_or_else(|error| panic!("{text}: {error}"))
}

criterion_group!(benches, text, order, receive);
criterion_main!(benches);
