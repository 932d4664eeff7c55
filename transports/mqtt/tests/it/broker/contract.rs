//! The poll contract, after any history.

use proptest::prelude::*;

use super::world::{Op, World, ops};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Early, or twice, changes nothing; and after what was due the next deadline is none or later.
    #[test]
    fn deadlines_advance(ops in ops(60)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
            let broker = &mut world.net.broker;
            let due = broker.poll_timeout();
            if due.is_some_and(|due| due > world.net.now) {
                let before = broker.stats();
                broker.handle_timeout(world.net.now);
                broker.handle_timeout(world.net.now);
                prop_assert_eq!((broker.stats(), broker.poll_timeout()), (before, due));
            }
            // A slice at a time, what takes long comes to its end too.
            let mut turns = 0;
            while let Some(due) = broker.poll_timeout().filter(|due| *due <= world.net.now) {
                broker.handle_timeout(world.net.now.max(due));
                turns += 1;
                prop_assert!(turns < 1_000, "it goes on for ever");
            }
        }
    }

    /// Bytes may come in pieces of any size.
    #[test]
    fn pieces_make_no_difference(ops in ops(40), piece in 1_usize..9) {
        let (mut whole, mut pieces) = (World::new(), World::new());
        pieces.piece = Some(piece);
        for op in &ops {
            prop_assert_eq!(whole.apply(op), pieces.apply(op), "{:?}", op);
        }
    }

    /// Equal calls, equal outputs.
    #[test]
    fn runs_can_be_repeated(ops in ops(60)) {
        let (mut one, mut other) = (World::new(), World::new());
        for op in &ops {
            prop_assert_eq!(one.apply(op), other.apply(op));
        }
        prop_assert_eq!(one.net.broker.stats(), other.net.broker.stats());
    }

    /// Any bytes do nothing to others, and end the connection or wait for more.
    #[test]
    fn any_bytes_will_do(
        ops in ops(20),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        after_connect in any::<bool>(),
    ) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        let net = &mut world.net;
        let honest = net.connect("honest", HELLO);
        net.subscribe(honest, "honest", Qos::AtLeastOnce);
        let wild = if after_connect { net.connect("wild", HELLO) } else { net.accept().unwrap() };
        net.write(wild, &bytes);
        net.seen(wild);
        net.publish(honest, "honest", "x", Qos::AtLeastOnce, 1);
        prop_assert_eq!(net.payloads(honest), ["x"]);
        net.close(wild);
    }
}

/// What nobody asks for costs nothing: no wake twice, and none without a reason.
#[test]
fn wakes_are_told_once() {
    let mut net = Net::default();
    let to = net.connect("to", HELLO);
    net.subscribe(to, "t", Qos::AtLeastOnce);
    let from = net.connect("from", HELLO);
    while net.broker.poll_wake().is_some() {}
    for at in 1..=100 {
        net.publish(from, "t", "x", Qos::AtLeastOnce, at);
    }
    assert_eq!(std::iter::from_fn(|| net.broker.poll_wake()).count(), 2);
    assert!(Op::Pass(1).is_time());
}
