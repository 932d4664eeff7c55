//! The list of fuzz targets in `fuzz/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn fuzz_readme_lists_each_target_once() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let files = fs::read_dir(fuzz.join("fuzz_targets")).unwrap();
    let targets: BTreeSet<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.trim_end_matches(".rs").to_owned())
        .collect();

    let readme = fs::read_to_string(fuzz.join("README.md")).unwrap();
    let listed: Vec<String> = readme
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    assert_eq!(listed.len(), targets.len(), "{listed:?}");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), targets);
}
