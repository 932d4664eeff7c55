//! Runs every committed fuzz input on stable Rust, as regression tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use statestore_fuzz_bodies::TARGETS;

/// Minimum number of inputs per target; fewer mean that a corpus was lost.
const INPUTS_MIN: usize = 20;

/// Maximum size of all corpora in bytes, since every clone of the repository contains them.
const BYTES_MAX: usize = 1 << 20;

/// Maximum number of inputs of all corpora, for the same reason.
const INPUTS_MAX: usize = 1600;

/// Inputs that are known to crash a parser: the file in the corpus and its first bytes.
const ARRAY_KILLERS: [(&str, &[u8]); 16] = [
    ("killer-array-2-62", b"*4611686018427387904\r\n"),
    ("killer-array-u32-max", b"*4294967295\r\n"),
    ("killer-array-minus-1", b"*-1\r\n"),
    ("killer-array-21-digits", b"*100000000000000000000\r\n"),
    ("killer-array-nested-10000", b"*1\r\n*1\r\n*1\r\n"),
    ("killer-blob-i64-max", b"*1\r\n$9223372036854775807\r\n"),
    ("killer-blob-u64-max-less-1", b"*1\r\n$18446744073709551614\r\n"),
    ("killer-blob-minus-2", b"*1\r\n$-2\r\n"),
    ("killer-blob-plus-5", b"*1\r\n$+5\r\n"),
    ("killer-blob-blank-5", b"*1\r\n$ 5\r\n"),
    ("killer-blob-no-digits", b"*1\r\n$\r\n"),
    ("killer-blob-21-digits", b"*1\r\n$100000000000000000000\r\n"),
    ("killer-lone-cr", b"*1\r$1\ra\r"),
    ("killer-lone-cr-in-length", b"*1\r\n$1\ra\r\n"),
    ("killer-trailing-byte", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n\n"),
    ("killer-trailing-message", b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*"),
];

/// Inputs of single frames that are known to crash a parser.
const FRAME_KILLERS: [(&str, &[u8]); 12] = [
    ("killer-array-nested-10000", b"*1\r\n*1\r\n*1\r\n"),
    ("killer-frame-blob-i64-max", b"$9223372036854775807\r\n"),
    ("killer-frame-blob-u64-max-less-1", b"$18446744073709551614\r\n"),
    ("killer-frame-blob-minus-2", b"$-2\r\n"),
    ("killer-frame-blob-plus-5", b"$+5\r\n"),
    ("killer-frame-blob-blank-5", b"$ 5\r\n"),
    ("killer-frame-blob-no-digits", b"$\r\n"),
    ("killer-frame-blob-21-digits", b"$100000000000000000000\r\n"),
    ("killer-frame-lone-cr", b"\r"),
    ("killer-frame-trailing-byte", b"+OK\r\n\n"),
    ("killer-frame-integer-21-digits", b":100000000000000000000\r\n"),
    ("killer-frame-integer-under", b":-9223372036854775809\r\n"),
];

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The names of the entries of a directory.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The inputs of a target by file name.
fn corpus(target: &str) -> BTreeMap<String, Vec<u8>> {
    let dir = fuzz_dir().join("corpus").join(target);
    names(&dir)
        .into_iter()
        .map(|name| {
            let input = fs::read(dir.join(&name)).unwrap();
            (name, input)
        })
        .collect()
}

#[test]
fn committed_fuzz_inputs_do_not_panic() {
    let mut failed = Vec::new();
    for (target, body) in TARGETS {
        for (name, input) in corpus(target) {
            if catch_unwind(|| body(&input)).is_err() {
                failed.push(format!("{target}/{name}"));
            }
        }
    }
    assert_eq!(failed, [""; 0], "these inputs panicked, see above");
}

#[test]
fn each_body_has_a_target_and_a_corpus() {
    let bodies: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(bodies.len(), TARGETS.len(), "a name is repeated");
    assert_eq!(names(&fuzz_dir().join("corpus")), bodies, "one corpus for each body");

    let files: BTreeSet<String> = bodies.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(names(&fuzz_dir().join("fuzz_targets")), files, "one target for each body");
    for name in &bodies {
        let file = fuzz_dir().join("fuzz_targets").join(format!("{name}.rs"));
        let call = format!("|data: &[u8]| statestore_fuzz_bodies::{name}(data)");
        let target = format!("#![no_main]\n\nlibfuzzer_sys::fuzz_target!({call});\n");
        assert_eq!(fs::read_to_string(file).unwrap(), target, "{name}.rs");
    }

    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    let targets: BTreeSet<String> = manifest
        .split("[[bin]]")
        .skip(1)
        .filter_map(|bin| bin.split('"').nth(1).map(str::to_owned))
        .collect();
    assert_eq!(targets, bodies, "one [[bin]] for each body");
}

#[test]
fn corpora_are_within_their_size_limits() {
    let corpora = TARGETS.map(|(target, _)| (target, corpus(target)));
    for (target, inputs) in &corpora {
        assert!(inputs.len() >= INPUTS_MIN, "{target} has {} inputs", inputs.len());
        let distinct: BTreeSet<&Vec<u8>> = inputs.values().collect();
        assert_eq!(distinct.len(), inputs.len(), "{target} has an input twice");
    }
    let inputs = || corpora.iter().flat_map(|(_, inputs)| inputs.values());
    assert!(inputs().count() <= INPUTS_MAX);
    assert!(inputs().map(Vec::len).sum::<usize>() <= BYTES_MAX);
}

#[test]
fn corpora_contain_the_known_crashes() {
    let present = |target, killers: &[(&str, &[u8])]| {
        let inputs = corpus(target);
        for (name, head) in killers {
            let input = inputs.get(*name).unwrap_or_else(|| panic!("{target}/{name} is missing"));
            assert!(input.starts_with(head), "{target}/{name} is another input");
        }
    };
    for target in ["request", "notification", "differential"] {
        present(target, &ARRAY_KILLERS);
    }
    for target in ["reply", "differential"] {
        present(target, &FRAME_KILLERS);
    }
    present("request", &[("get-key-with-crlf", b"*2\r\n$3\r\nGET\r\n$8\r\na\r\n$1\r\nb\r\n")]);
    assert_eq!(corpus("request")["killer-array-nested-10000"], b"*1\r\n".repeat(10_000));
}
