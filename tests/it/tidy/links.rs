//! Links in Markdown files lead to files of the repository, and to headings in them.

use std::path::{Component, Path, PathBuf};

use super::{File, check_all, file, files_named, root};

/// The text outside of code blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The name of a heading in a link: lowercase letters and digits, and hyphens instead of blanks.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then(|| letter.to_ascii_lowercase()),
    });
    letters.collect()
}

fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// The links to other places in the repository.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.to_owned());
    targets
        .filter(|target| !target.contains(':') && !target.contains(char::is_whitespace))
        .collect()
}

/// The path of a link without `..`, from the root of the repository.
fn resolved(page: &str, path: &str) -> PathBuf {
    if path.is_empty() {
        return page.into();
    }
    let mut result = Path::new(page).parent().unwrap().to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => _ = result.pop(),
            part => result.push(part),
        }
    }
    result
}

/// The links whose targets do not exist.
fn broken_links(page: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    for link in links(&page.text) {
        let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
        let target = root().join(resolved(&page.path, path));
        let text = match path {
            "" => Some(page.text.clone()),
            _ => std::fs::read_to_string(&target).ok(),
        };
        let has_heading = heading.is_empty()
            || text.is_some_and(|text| anchors(&text).iter().any(|anchor| anchor == heading));
        if !(path.is_empty() || target.exists()) || !has_heading {
            complaints.push(format!("broken link {link}"));
        }
    }
    complaints
}

#[test]
fn links_lead_to_files_and_headings() {
    let pages = files_named(".", ".md");
    assert!(pages.iter().any(|page| page.path == "docs/security.md"), "the pages are found");
    check_all(&pages, broken_links);
}

/// The pages of the book, in the order of its summary.
fn chapters() -> Vec<String> {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    links(&summary).into_iter().map(|link| format!("docs/{link}")).collect()
}

#[test]
fn summary_of_the_book_has_each_page_once() {
    let pages = files_named("docs", ".md").into_iter().map(|page| page.path);
    let pages: Vec<String> = pages.filter(|page| page != "docs/SUMMARY.md").collect();
    let mut chapters = chapters();
    chapters.sort();
    assert_eq!(chapters, pages);
}

#[test]
fn broken_link_is_found() {
    let broken = |text: &str| broken_links(&file("docs/page.md", text));
    let good = "# A `page`, of mine\n[a](#a-page-of-mine) [b](../README.md) [c](security.md#external-brokers) \
                [d](https://example.com/x) [e](../core)\n```text\n[f](nowhere.md)\n```\n";
    assert_eq!(broken(good), Vec::<String>::new());
    for link in
        ["nowhere.md", "#nowhere", "security.md#nowhere", "../docs/nowhere.md#external-brokers"]
    {
        assert_eq!(broken(&format!("# Page\n[x]({link})")), [format!("broken link {link}")]);
    }
}
