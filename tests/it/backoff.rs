//! Pauses after failures.

use std::time::Duration;

use statestore_proto::backoff::Backoff;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn pauses_double_up_to_the_longest_and_reset_to_the_first() {
    for seed in 0..100 {
        let mut backoff = Backoff::new(millis(100), millis(1_000), seed);
        for _ in 0..2 {
            for full in [100, 200, 400, 800, 1_000, 1_000] {
                let pause = backoff.next_pause();
                assert!(millis(full / 2) <= pause && pause <= millis(full), "{pause:?} of {full}");
            }
            for _ in 0..100 {
                assert!(backoff.next_pause() <= backoff.longest());
            }
            backoff.reset();
        }
    }
}

#[test]
fn no_pause_is_longer_than_the_longest() {
    for (first, longest) in [(50, 10), (0, 10), (1, 1), (u64::MAX, u64::MAX)] {
        let mut backoff = Backoff::new(millis(first), millis(longest), 7);
        for _ in 0..10 {
            assert!(backoff.next_pause() <= millis(longest), "{first} {longest}");
        }
    }
    let mut greatest = Backoff::new(Duration::MAX, Duration::MAX, 7);
    assert!(greatest.next_pause() <= Duration::MAX && greatest.next_pause() <= Duration::MAX);
}

#[test]
fn equal_seeds_give_equal_pauses_and_others_do_not() {
    let pauses = |seed| {
        let mut backoff = Backoff::new(millis(1_000), millis(64_000), seed);
        std::array::from_fn::<_, 8, _>(|_| backoff.next_pause())
    };
    assert_eq!(pauses(1), pauses(1));
    assert_ne!(pauses(1), pauses(2));
}
