//! The oracle: rules as values, and matching by exhaustive trial.

/// A rule in its simplest form.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) users: Vec<String>,
    pub(crate) attributes: Vec<Vec<(String, String)>>,
    /// Method, key type (empty for topics) and texts.
    pub(crate) resources: Vec<(&'static str, &'static str, Vec<String>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) client_id: String,
    pub(crate) user: Option<String>,
    pub(crate) attributes: Vec<(String, String)>,
}

/// Characters of a pattern; true if the character comes from a value and so is literal.
type Letters = Vec<(char, bool)>;

/// Returns the text with the values of a principal, character by character.
fn filled(text: &str, who: &Who) -> Option<Letters> {
    let mut letters = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let group = who.attributes.iter().find(|(name, _)| name == "g").map(|(_, value)| value);
        let places = [
            ("{principal.clientId}", Some(&who.client_id)),
            ("{principal.username}", who.user.as_ref()),
            ("{principal.attributes.g}", group),
        ];
        match places.iter().find(|(place, _)| rest.starts_with(place)) {
            Some((place, value)) => {
                let value = value.filter(|value| !value.is_empty())?;
                letters.extend(value.chars().map(|letter| (letter, true)));
                rest = &rest[place.len()..];
            }
            None => {
                let letter = rest.chars().next().unwrap();
                letters.push((letter, false));
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    Some(letters)
}

/// Supports `*` and `?` only; the patterns of these tests contain no other wildcard.
fn glob(pattern: &[(char, bool)], key: &[char]) -> bool {
    match pattern.split_first() {
        None => key.is_empty(),
        Some((('*', false), rest)) => (0..=key.len()).any(|at| glob(rest, &key[at..])),
        Some((('?', false), rest)) => !key.is_empty() && glob(rest, &key[1..]),
        Some(((letter, _), rest)) => key.first() == Some(letter) && glob(rest, &key[1..]),
    }
}

fn levels(letters: &Letters) -> Option<Vec<Letters>> {
    if letters.iter().any(|(letter, is_value)| *is_value && "/+#".contains(*letter)) {
        return None;
    }
    Some(letters.split(|letter| *letter == ('/', false)).map(<[_]>::to_vec).collect())
}

fn is_topic(filter: &[Letters], topic: &[&str]) -> bool {
    match (filter.split_first(), topic.split_first()) {
        (Some((level, [])), _) if level[..] == [('#', false)] => true,
        (None, None) => true,
        (Some((level, filter)), Some((name, topic))) => {
            let text: String = level.iter().map(|(letter, _)| letter).collect();
            (level[..] == [('+', false)] || text == **name) && is_topic(filter, topic)
        }
        _ => false,
    }
}

fn matches_topic(text: &str, who: &Who, topic: &str) -> bool {
    let Some(filter) = filled(text, who).and_then(|letters| levels(&letters)) else { return false };
    let is_wild = matches!(filter[0][..], [('+' | '#', false)]);
    !(is_wild && topic.starts_with('$')) && is_topic(&filter, &topic.split('/').collect::<Vec<_>>())
}

/// Returns whether one of the rules allows `Publish`, `Read`, `Write` or `Fence` of an object.
pub(crate) fn allows(rules: &[Rule], who: &Who, method: &str, object: &str) -> bool {
    if method == "Fence" {
        let has_fences = rules.iter().flat_map(|rule| &rule.resources).any(|one| one.0 == "Fence");
        return allows(rules, who, "Write", object)
            && (!has_fences || grants(rules, who, method, object));
    }
    grants(rules, who, method, object)
}

fn grants(rules: &[Rule], who: &Who, method: &str, object: &str) -> bool {
    let is_for = |rule: &Rule| {
        let user = who.user.as_ref().filter(|user| !user.is_empty());
        user.is_some_and(|user| rule.users.iter().any(|own| own == user || own == "*"))
            || rule.attributes.iter().any(|all| all.iter().all(|one| who.attributes.contains(one)))
    };
    let has = |(own, key_type, texts): &(&str, &str, Vec<String>)| {
        let is_method =
            *own == method || *own == "ReadWrite" && ["Read", "Write"].contains(&method);
        let key: Vec<char> = object.chars().collect();
        is_method
            && texts.iter().any(|text| match *key_type {
                "Pattern" => filled(text, who).is_some_and(|letters| glob(&letters, &key)),
                "String" => filled(text, who).is_some_and(|letters| {
                    letters.iter().map(|(letter, _)| *letter).eq(key.clone())
                }),
                _ => matches_topic(text, who, object),
            })
    };
    rules.iter().any(|rule| is_for(rule) && rule.resources.iter().any(has))
}
