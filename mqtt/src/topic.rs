//! Topic names and filters.

/// Returns whether the text is a valid topic name: not empty and without wildcards. NUL is not
/// checked, since it is invalid in every MQTT string.
#[must_use]
pub fn is_name(text: &str) -> bool {
    is_name_of_bytes(text.as_bytes())
}

/// As [`is_name`], for the bytes of a text.
pub(crate) fn is_name_of_bytes(text: &[u8]) -> bool {
    !text.is_empty() && !has_wildcard(text)
}

/// Reads the whole text without an early exit, so that the compiler vectorizes the loop.
fn has_wildcard(text: &[u8]) -> bool {
    text.iter().fold(false, |found, byte| found | (*byte == b'+') | (*byte == b'#'))
}

/// Returns whether the text is a valid filter without a share: `+` is a whole level, and `#` is the
/// whole last level.
#[must_use]
pub fn is_filter(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_none_or(|byte| *byte == b'/');
    // By bytes instead of levels, since a filter may have very many levels.
    let mut rest = text.as_bytes();
    let mut before = None;
    while let Some((byte, after)) = rest.split_first() {
        let is_right = match byte {
            b'+' => is_edge(before) && is_edge(after.first()),
            b'#' => is_edge(before) && after.is_empty(),
            _ => true,
        };
        if !is_right {
            return false;
        }
        (before, rest) = (Some(byte), after);
    }
    !text.is_empty()
}

/// A topic filter and its optional share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Share name.
    pub share: Option<&'a str>,
    /// Filter without `$share/NAME/`.
    pub filter: &'a str,
}

impl<'a> Filter<'a> {
    /// Parses the filter of a SUBSCRIBE or UNSUBSCRIBE; `None` if it is invalid.
    ///
    /// ```
    /// use statestore_mqtt::topic::Filter;
    ///
    /// let filter = Filter::parse("$share/workers/jobs/+").unwrap();
    /// assert_eq!((filter.share, filter.filter), (Some("workers"), "jobs/+"));
    /// assert!(filter.matches("jobs/7") && !filter.matches("jobs/7/done"));
    /// assert_eq!(Filter::parse("jobs/#/done"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let parsed = match text.strip_prefix("$share/") {
            None => Self { share: None, filter: text },
            Some(rest) => {
                let (share, filter) = rest.split_once('/')?;
                if share.is_empty() || share.contains(['+', '#']) {
                    return None;
                }
                Self { share: Some(share), filter }
            }
        };
        is_filter(parsed.filter).then_some(parsed)
    }

    /// Returns whether the filter matches the topic name.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        matches(self.filter, topic)
    }
}

/// Returns whether `filter`, without a share, matches the topic name. A wildcard in the first level
/// does not match topics that begin with `$`.
#[must_use]
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(name)) if level == name => {}
            _ => return false,
        }
    }
}

/// Returns whether `filter` matches every topic that `other` matches; both are filters without a
/// share.
///
/// The filters are compared level by level, so the result can be a false negative: `+/#` matches
/// the same topics as `#`, but does not cover it.
///
/// ```
/// use statestore_mqtt::topic::covers;
///
/// assert!(covers("jobs/#", "jobs/+/done") && covers("jobs/#", "jobs"));
/// assert!(!covers("jobs/+", "jobs/#") && !covers("#", "$SYS/#"));
/// ```
#[must_use]
pub fn covers(filter: &str, other: &str) -> bool {
    if other.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut other) = (filter.split('/'), other.split('/'));
    loop {
        match (filter.next(), other.next()) {
            (Some("#"), _) | (None, None) => return true,
            (_, Some("#")) => return false,
            (Some("+"), Some(_)) => {}
            (Some(level), Some(name)) if level == name => {}
            _ => return false,
        }
    }
}
