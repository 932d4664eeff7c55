//! The poll contract, after random histories.

use proptest::prelude::*;

use super::world::{World, ops};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A timeout call that is early or repeated has no effect. After a due call the next deadline
    /// is later, or there is none.
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
            // Long work is done in slices, and ends after a limited number of them.
            let mut turns = 0;
            while let Some(due) = broker.poll_timeout().filter(|due| *due <= world.net.now) {
                broker.handle_timeout(world.net.now.max(due));
                turns += 1;
                prop_assert!(turns < 1_000, "more than 1,000 slices at the same time");
            }
        }
    }

    /// The output does not depend on how the input bytes are divided.
    #[test]
    fn division_of_the_input_does_not_change_the_output(ops in ops(40), piece in 1_usize..9) {
        let (mut whole, mut pieces) = (World::new(), World::new());
        pieces.piece = Some(piece);
        for op in &ops {
            prop_assert_eq!(whole.apply(op), pieces.apply(op), "{:?}", op);
        }
    }

    /// Equal calls produce equal outputs.
    #[test]
    fn runs_are_deterministic(ops in ops(60)) {
        let (mut first, mut second) = (World::new(), World::new());
        for op in &ops {
            prop_assert_eq!(first.apply(op), second.apply(op));
        }
        prop_assert_eq!(first.net.broker.stats(), second.net.broker.stats());
    }

    /// Arbitrary bytes on one connection do not affect other connections and do not panic.
    #[test]
    fn arbitrary_bytes_do_not_affect_other_connections(
        ops in ops(20),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        after_connect in any::<bool>(),
    ) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        let net = &mut world.net;
        let honest = net.connect("honest", CLEAN);
        net.subscribe(honest, "honest", Qos::AtLeastOnce);
        let wild = if after_connect { net.connect("wild", CLEAN) } else { net.accept().unwrap() };
        net.write(wild, &bytes);
        net.receive(wild);
        net.publish(honest, "honest", "x", Qos::AtLeastOnce, 1);
        prop_assert_eq!(net.receive_payloads(honest), ["x"]);
        net.close(wild);
    }
}

/// A connection with unread output is reported once, and a connection without output never.
#[test]
fn wakes_are_reported_once() {
    let mut net = Net::default();
    let to = net.connect("to", CLEAN);
    net.subscribe(to, "t", Qos::AtLeastOnce);
    let from = net.connect("from", CLEAN);
    while net.broker.poll_wake().is_some() {}
    for at in 1..=100 {
        net.publish(from, "t", "x", Qos::AtLeastOnce, at);
    }
    assert_eq!(std::iter::from_fn(|| net.broker.poll_wake()).count(), 2);
}
