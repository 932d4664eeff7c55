//! Clock values: text in, text out, order, and the receive rule.

use std::cmp::Ordering;
use std::hint::black_box;

use statestore_proto::hlc::{Hlc, HlcRef, HybridClock, NodeId};
use statestore_proto::time::UnixTime;

use super::Path;

const BARE: &str = "1696374425000:1:StateStore";
const PADDED: &str = "001696374425000:00001:StateStore";

/// All operations of clock values.
#[must_use]
pub fn hlc() -> Vec<Path> {
    let mut paths = vec![
        parse("hlc/parse/bare", BARE).counted(),
        parse("hlc/parse/padded", PADDED),
        Path::new("hlc/parse/owned", || {
            assert_eq!(parsed(PADDED), parsed(BARE), "both forms are accepted");
            || _ = black_box(black_box(PADDED).parse::<Hlc>())
        })
        .bytes(PADDED.len()),
        Path::new("hlc/encode", || {
            let hlc = parsed(BARE);
            assert_eq!(hlc.encode(), BARE);
            move || _ = black_box(black_box(&hlc).encode())
        })
        .bytes(BARE.len())
        .counted(),
        Path::new("hlc/encode-into", || {
            let (hlc, mut out) = (parsed(BARE), [0; 64]);
            assert_eq!(hlc.encode_into(&mut out).map(|len| &out[..len]), Ok(BARE.as_bytes()));
            move || _ = black_box(black_box(&hlc).encode_into(black_box(&mut out)))
        })
        .bytes(BARE.len()),
        Path::new("hlc/receive", receive).counted(),
    ];
    for (name, greater) in [
        ("hlc/compare/wall", "1696374425001:0:StateStore"),
        ("hlc/compare/counter", "1696374425000:10:StateStore"),
        ("hlc/compare/node", "1696374425000:1:StateStore-2"),
    ] {
        paths.push(Path::new(name, || {
            let (less, greater) = (parsed(BARE), parsed(greater));
            assert_eq!(less.cmp(&greater), Ordering::Less);
            move || _ = black_box(black_box(&less).cmp(black_box(&greater)))
        }));
    }
    paths
}

fn parse(name: &str, text: &'static str) -> Path {
    let prepare = move || {
        let hlc = HlcRef::parse(text).expect("a valid clock value");
        assert_eq!((hlc.wall().as_millis(), hlc.counter()), (1_696_374_425_000, 1));
        assert_eq!(hlc, parsed(BARE));
        move || _ = black_box(HlcRef::parse(black_box(text)))
    };
    Path::new(name, prepare).bytes(text.len())
}

fn receive() -> impl FnMut() {
    let now = UnixTime::from_millis(1_696_374_425_000);
    let request = parsed("1696374425000:0:CLIENT");
    let mut clock = HybridClock::new(NodeId::new("StateStore").expect("a valid node id"));
    assert_eq!(clock.receive(now, request.borrowed()), Ok(parsed(BARE)));
    move || _ = black_box(clock.receive(black_box(now), black_box(&request).borrowed()))
}

fn parsed(text: &str) -> Hlc {
    text.parse().expect("a valid clock value")
}
