//! Named inputs to start fuzzing from; each reaches a particular state.
//!
//! Written as head bytes and operations; an operation is its tag and arguments, without trailing
//! zeros.

/// A name and an input.
pub type Seed = (&'static str, Vec<u8>);

/// A name, head bytes, and operations.
type Story = (&'static str, &'static [u8], &'static str);

fn seeds(stories: &[Story]) -> Vec<Seed> {
    let input = |(name, head, operations): &Story| {
        let mut bytes = head.to_vec();
        for operation in operations.split_whitespace() {
            let (tag, args) = operation.split_at(1);
            let mut given = args.split(',').filter_map(|arg| arg.parse().ok());
            bytes.extend(tag.bytes().chain((0..5).map(|_| given.next().unwrap_or(0))));
        }
        (*name, bytes)
    };
    stories.iter().map(input).collect()
}

/// Inputs for [`store_ops`](super::store_ops).
#[must_use]
pub fn store_seeds() -> Vec<Seed> {
    let mut seeds = seeds(STORE);
    seeds.push(("raw-payload", b"\0x\x05\0\0\0\0*1\r\n$".to_vec()));
    seeds
}

/// Inputs for [`client_events`](super::client_events).
#[must_use]
pub fn client_seeds() -> Vec<Seed> {
    seeds(CLIENT)
}

/// Inputs for [`world`](super::world).
#[must_use]
pub fn world_seeds() -> Vec<Seed> {
    seeds(WORLD)
}

const STORE: &[Story] = &[
    ("set-get-del", &[0], "S0,0,1 G D G D"),
    ("conditions", &[0], "S0,2,3,2 S1,2,1,2 S0,2,3,2 S1,2,1,1 S1,2,1,15"),
    ("vdel", &[0], "S0,2,3 V1,2,1 V0,2,3 V0,2,3"),
    ("fence", &[0], "S0,0,1,0,240 S0,0,2,0,192 S0,0,2,0,144 S0,0,1 S0,0,1,0,160 D"),
    ("expiry-seen", &[0], "K1 S0,0,1,16 T99 G T1 G"),
    ("expiry-by-timer", &[0], "K1 S0,0,1,16 S0,1,1,16 t100 t"),
    ("expiry-removed", &[0], "S0,0,1,16 S0,0,1 t255 G"),
    ("watch-dialects", &[0], "K K5 S2,0,1 D U U S2,0,1"),
    ("client-gone", &[0], "K K0,1 L S2,0,1 K S2,0,1"),
    ("no-subscriber", &[0], "K K0,1 S2,0,1 K0,1 P S2,0,1 S2,1,1"),
    ("silenced", &[0], "K K1 S2,0,1 P S2,0,2 D K S2,0,3 P0,0 U U K1 L1 U1"),
    ("silenced-evicted", &[65], "K K1 K1,1 S2,0,1 P P1 K2 K2,1 U U1 U2 K3 K3,1 T0,130 K1 U3"),
    ("silenced-held", &[16], "K K1 S2,0,1 H1 S2,0,2 P P1 b b b H S2,0,3 K S2,0,4 U"),
    ("duplicates", &[0], "S0,0,1,1 R D R R G R"),
    ("duplicate-too-late", &[0], "S48,0,1,1 T0,4 R"),
    (
        "flaws",
        &[0],
        "B S0,0,1 B1 S1,0,1 B2 S2,0,1 B3 S3,0,1 B4 S0,0,1 B5 S1,0,1 B6 S2,0,1 B7 S3,0,1 \
         B8 S0,0,1 B9 S1,0,1 B10 S2,0,1 B11 S3,0,1 B12 S0,0,1 B13 S1,0,1 B14 S2,0,1 B15 \
         S3,0,1",
    ),
    (
        "chunks",
        &[0],
        "B16 S0,0,1 R0 B17 S0,0,1 B18 S0,0,1 B19 S0,0,1 B16 G0,0 B17 S0,0,2 S0,0,1 G0,0",
    ),
    (
        "hostile-payloads",
        &[0],
        "X X0,1,1,1 X0,2,2,2 X0,3,3,3 X0,4,4,4 X0,5,5,5 X0,6,6,6 X0,7,7,7 X0,8,8,8 \
         X0,9,9,9 X0,10,10,10 X0,11,11,11 X0,12,12,12 X0,13,13,13 X0,14,14,14 X0,15,15,15",
    ),
    (
        "strict-page-words",
        &[12],
        "X X0,1,1,1 X0,2,2,2 X0,3,3,3 X0,4,4,4 X0,5,5,5 X0,6,6,6 X0,7,7,7 X0,8,8,8 \
         X0,9,9,9 X0,10,10,10 X0,11,11,11 X0,12,12,12 X0,13,13,13 X0,14,14,14 X0,15,15,15",
    ),
    ("small-keys", &[129], "S0,0,1,16 S0,1,1,16 S0,2,1 S0,3,1 T100 S0,3,1 S0,3,5"),
    ("small-watches", &[65], "K K1 K2 K0,1 K1,1 K2,2 K U1 K2"),
    ("durable", &[16], "K1 S8,0,1,16 S0,1,2 G D0,1 t100 S0,2,1"),
    ("durable-when-asked", &[32], "S8,0,1 S0,0,2 S0,1,1 S8,1,1 D0,1"),
    ("held-batches", &[16], "K1 S8,0,1 H1 S0,0,2 G D1,1 b S0,1,3 b K0,1 b H S0,0,4"),
    (
        "held-until-full",
        &[17],
        "K1 K H1 S0,0,1 S0,0,2 S0,0,3 S0,0,4 S0,1,1 G b S0,0,5 b b S0,1,6,16 t255 H t255",
    ),
    ("wall-clock-steps", &[0], "S0,0,1 W28 S0,0,1 W255 S0,0,1 S0,1,1,0,7 S0,1,1,0,10"),
];

const CLIENT: &[Story] = &[
    (
        "submit-before-connect",
        &[1],
        "s1,0,1 s0,0,1 C1 p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7",
    ),
    (
        "watch-and-write",
        &[1],
        "C1 o p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 w0,1,1 w0,2,1 w p7 h3 d3 p7 h3 d3 \
         e7",
    ),
    (
        "watch-offline-first",
        &[1],
        "o w0,1,1 C1 p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 w0,2,1 p7 h3 d3 p7 h3 d3 \
         e7",
    ),
    (
        "gap-and-read-again",
        &[1],
        "C1 o p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 D w0,1,1 C1 p7 h3 d3 p7 h3 d3 e7",
    ),
    (
        "write-while-registering",
        &[1],
        "C1 o p7 w0,1,1 h3 w0,2,1 p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 w w0,3,1 p7 \
         h3 d3 p7 h3 d3 e7",
    ),
    (
        "unwatch",
        &[1],
        "C1 o p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 u o w0,1,1 p7 h3 d3 p7 h3 d3 e7",
    ),
    (
        "lagging",
        &[3],
        "C1 o o1 o2 p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 w0,1,1 w1,1,1 w2,1,1 w0,2,1 \
         w1 d3 d3 p7 h3 d3 p7 h3 d3 e7",
    ),
    (
        "lagging-and-lost",
        &[3],
        "C1 o o1 p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 w0,1,1 w1,1,1 d3 D u C1 w0,2,1 \
         p7 h3 d3 p7 h3 d3 e7",
    ),
    (
        "full",
        &[3],
        "s0,0,1 s1,0,1 s2,0,1 s3,0,1 C1 p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 s0,0,1 \
         p7 h3 d3 p7 h3 d3 e7",
    ),
    (
        "timed-out-in-flight",
        &[1],
        "C1 o p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 s0,0,1 p7 T0,3 h3 d3 p7 h3 d3 p7 \
         h3 d3 e7",
    ),
    (
        "expired",
        &[1],
        "C1 o p7 h3 d3 p7 h3 d3 e7 p7 h3 d3 p7 h3 d3 e7 w0,1,2 T0,1 e7 p7 h3 d3 p7 h3 d3 \
         e7",
    ),
    ("suback-refused", &[0], "s0,0,1 o C1 p7 A0,4 A0,4 p7 e7 T0,3 C1 p7 A0,1 p7"),
    ("unsolicited", &[0], "C1 p7 A0,1 p7 n0,1,1 R0,0,0,7 N0,200,1,2 N3,0,0,4 e7"),
    ("rejected", &[0], "C1 p7 A0,1 p7 s0,0,1 p7 P0,2 P0,4 r0,1 e7"),
    ("malformed-reply", &[0], "C1 p7 A0,1 p7 s0,0,1 p7 R0,9,0,7 r0,1 s1,0,1 p7 R0,10,0,7 e7"),
    ("duplicate-reply", &[0], "C1 p7 A0,1 p7 s0,0,1 p7 r0,1 r0,1 r0,1 e7"),
    ("session-kept", &[4], "C1 p7 A0,1 p7 s0,0,1 p7 D C1 r0,1 s0,0,1 p7 D C e7"),
    ("watch-refused", &[0], "o C1 p7 A0,1 A0,1 p7 R0,8,0,7 e7 o"),
    (
        "old-and-new-versions",
        &[0],
        "o C1 p7 A0,1 A0,1 p7 r0,1 p7 r0,1 e7 n0,1,3 n0,1,2 n0,1,3 n0,0,3 n0,0,3 n0,1,31 \
         n0,1,30 e7",
    ),
    ("notified-before-read", &[0], "o C1 p7 A0,1 A0,1 p7 r0,1 p7 n0,1,5 r p7 r0,1 e7"),
    ("cancel", &[0], "C1 p7 A0,1 p7 s0,0,1 c s0,0,1 p7 c r0,1 e7"),
];

const WORLD: &[Story] = &[
    (
        "quiet-basics",
        &[1, 0, 0, 0],
        "T0,50 o s1,3,0,1,28 T0,50 s1,1,0,1,28 s2,3,0,2,29 T0,50 s0,0,0,1,28 T0,99",
    ),
    (
        "quiet-races",
        &[1, 0, 0, 0],
        "T0,50 s0,3,2,1,30 s1,3,2,2,30 s2,3,2,3,30 s0,2,2,1,28 T0,20 s1,3,2,2,30 \
         s1,1,2,1,28 T0,90",
    ),
    ("quiet-leases", &[1, 0, 0, 0], "T0,50 o1,2 s0,3,2,1,94 T0,99 T0,99 s1,3,2,2,62 T0,200"),
    (
        "quiet-reconnects",
        &[1, 0, 0, 0],
        "T0,50 o o1 s2,3,0,1,28 D s2,3,0,2,28 T0,10 D1 s2,3,0,3,28 u T0,200",
    ),
    (
        "quiet-clocks",
        &[1, 0, 0, 0],
        "W0,200 W1,60 T0,50 s0,3,0,1,28 s1,3,0,2,28 T0,50 s0,3,0,3,28 F0,99,99 \
         s1,3,1,1,28 T0,99",
    ),
    (
        "slow-basics",
        &[2, 129, 0, 0],
        "T0,50 o s1,3,0,1,28 T0,50 s1,1,0,1,28 s2,3,0,2,29 T0,50 s0,0,0,1,28 T0,99",
    ),
    (
        "slow-races",
        &[2, 129, 0, 0],
        "T0,50 s0,3,2,1,30 s1,3,2,2,30 s2,3,2,3,30 s0,2,2,1,28 T0,20 s1,3,2,2,30 \
         s1,1,2,1,28 T0,90",
    ),
    (
        "slow-reconnects",
        &[2, 129, 0, 0],
        "T0,50 o o1 s2,3,0,1,28 D s2,3,0,2,28 T0,10 D1 s2,3,0,3,28 u T0,200",
    ),
    (
        "lossy-basics",
        &[3, 65, 120, 0],
        "T0,50 o s1,3,0,1,28 T0,50 s1,1,0,1,28 s2,3,0,2,29 T0,50 s0,0,0,1,28 T0,99",
    ),
    (
        "lossy-races",
        &[3, 65, 120, 0],
        "T0,50 s0,3,2,1,30 s1,3,2,2,30 s2,3,2,3,30 s0,2,2,1,28 T0,20 s1,3,2,2,30 \
         s1,1,2,1,28 T0,90",
    ),
    ("lossy-leases", &[3, 65, 120, 0], "T0,50 o1,2 s0,3,2,1,94 T0,99 T0,99 s1,3,2,2,62 T0,200"),
    (
        "lossy-reconnects",
        &[3, 65, 120, 0],
        "T0,50 o o1 s2,3,0,1,28 D s2,3,0,2,28 T0,10 D1 s2,3,0,3,28 u T0,200",
    ),
    (
        "doubled-basics",
        &[4, 65, 0, 15],
        "T0,50 o s1,3,0,1,28 T0,50 s1,1,0,1,28 s2,3,0,2,29 T0,50 s0,0,0,1,28 T0,99",
    ),
    (
        "doubled-races",
        &[4, 65, 0, 15],
        "T0,50 s0,3,2,1,30 s1,3,2,2,30 s2,3,2,3,30 s0,2,2,1,28 T0,20 s1,3,2,2,30 \
         s1,1,2,1,28 T0,90",
    ),
    (
        "doubled-clocks",
        &[4, 65, 0, 15],
        "W0,200 W1,60 T0,50 s0,3,0,1,28 s1,3,0,2,28 T0,50 s0,3,0,3,28 F0,99,99 \
         s1,3,1,1,28 T0,99",
    ),
    (
        "shuffled-basics",
        &[5, 193, 0, 56],
        "T0,50 o s1,3,0,1,28 T0,50 s1,1,0,1,28 s2,3,0,2,29 T0,50 s0,0,0,1,28 T0,99",
    ),
    (
        "shuffled-reconnects",
        &[5, 193, 0, 56],
        "T0,50 o o1 s2,3,0,1,28 D s2,3,0,2,28 T0,10 D1 s2,3,0,3,28 u T0,200",
    ),
    (
        "broken-basics",
        &[6, 65, 40, 197],
        "T0,50 o s1,3,0,1,28 T0,50 s1,1,0,1,28 s2,3,0,2,29 T0,50 s0,0,0,1,28 T0,99",
    ),
    (
        "broken-races",
        &[6, 65, 40, 197],
        "T0,50 s0,3,2,1,30 s1,3,2,2,30 s2,3,2,3,30 s0,2,2,1,28 T0,20 s1,3,2,2,30 \
         s1,1,2,1,28 T0,90",
    ),
    (
        "broken-reconnects",
        &[6, 65, 40, 197],
        "T0,50 o o1 s2,3,0,1,28 D s2,3,0,2,28 T0,10 D1 s2,3,0,3,28 u T0,200",
    ),
];
