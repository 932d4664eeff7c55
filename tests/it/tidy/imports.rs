//! The paths that a file names, by the tokens of Rust: without comments and strings.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::File;

type Path = Vec<String>;

/// The tokens of a file, without items for tests.
pub(super) fn tokens(file: &File) -> Vec<TokenTree> {
    let all: TokenStream =
        file.text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.path));
    without_tests(all)
}

fn without_tests(all: TokenStream) -> Vec<TokenTree> {
    let mut kept: Vec<TokenTree> = Vec::new();
    let mut is_for_tests = false;
    for token in all {
        let is_end = match &token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            _ => false,
        };
        if token.to_string().replace(' ', "") == "[cfg(test)]" {
            is_for_tests = true;
            kept.pop();
        } else if !is_for_tests {
            kept.push(token);
        } else if is_end {
            is_for_tests = false;
        }
    }
    kept
}

/// The module path of a file below `src` of a package; empty for the root.
pub(super) fn module(path: &str) -> Path {
    let inside =
        path.rsplit_once("src/").map_or(path, |(_, inside)| inside).trim_end_matches(".rs");
    let parts = inside.split('/').filter(|part| !matches!(*part, "mod" | "lib" | "main"));
    parts.map(str::to_owned).collect()
}

/// The paths that a file names by `crate::` or `super::`, from the root of the crate.
pub(super) fn used_paths(file: &File) -> Vec<Path> {
    let mut paths = Vec::new();
    collect(&tokens(file), &module(&file.path), &mut paths);
    paths
}

fn collect(tokens: &[TokenTree], own: &[String], paths: &mut Vec<Path>) {
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect(&without_tests(group.stream()), own, paths),
            TokenTree::Ident(root) if is_separator(tokens, at + 1) => {
                // The later words of a path are not its root.
                let is_root = at < 2 || !is_separator(tokens, at - 2);
                let (mut at, mut levels) = (at, 0);
                while tokens.get(at).is_some_and(|word| word.to_string() == "super") {
                    (at, levels) = (at + 3, levels + 1);
                }
                let parent = own.get(..own.len().saturating_sub(levels)).unwrap_or_default();
                if is_root && root == "crate" {
                    read(&tokens[at + 3..], &[], paths);
                } else if is_root && levels > 0 {
                    read(tokens.get(at..).unwrap_or_default(), parent, paths);
                }
            }
            _ => {}
        }
    }
}

/// The paths of all `use` declarations, as they are written.
pub(super) fn declared(file: &File) -> Vec<Path> {
    let tokens = tokens(file);
    let mut paths = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.to_string() == "use" {
            read(&tokens[at + 1..], &[], &mut paths);
        }
    }
    paths
}

fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon = |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(at) && is_colon(at + 1)
}

/// Appends the path that begins here, or each path of a group.
fn read(tokens: &[TokenTree], prefix: &[String], paths: &mut Vec<Path>) {
    match tokens.first() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let inside: Vec<TokenTree> = group.stream().into_iter().collect();
            for part in inside.split(|token| token.to_string() == ",") {
                read(part, prefix, paths);
            }
        }
        Some(TokenTree::Ident(name)) => {
            let path = [prefix, &[name.to_string()]].concat();
            let continues =
                matches!(tokens.get(3), Some(TokenTree::Ident(_) | TokenTree::Group(_)));
            match is_separator(tokens, 1) && continues {
                true => read(&tokens[3..], &path, paths),
                false => paths.push(path),
            }
        }
        _ => {}
    }
}

#[test]
fn paths_are_read_from_code_only() {
    let text = "use super::{a::B, c::{self, D as E, f::G,}};\n// crate::no\nconst A: &str = \"crate::no\";\n\
        #[cfg(test)]\nmod tests { use crate::no; }\nfn f() { g!(crate::i::J::<u8>::new(super::super::k)) }";
    let path = "core/src/x/y.rs";
    let found = used_paths(&File { path: path.into(), text: text.into() });
    let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["x::a::B", "x::c::self", "x::c::D", "x::c::f::G", "i::J", "k"]);
}
