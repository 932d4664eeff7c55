//! Topic names and filters.

/// Whether this can be a topic name: not empty, and without wildcards. That it has no NUL is a rule for every text.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && !has_wildcard(text)
}

/// Looks at all of it whatever it finds, which takes several bytes at a time.
fn has_wildcard(text: &str) -> bool {
    text.bytes().fold(false, |found, byte| found | (byte == b'+') | (byte == b'#'))
}

/// Whether this can be a topic filter that is not shared: `+` is a whole level, and `#` a whole level at the end.
#[must_use]
pub fn is_filter(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_none_or(|byte| *byte == b'/');
    // By bytes, since there may be very many levels.
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

/// A topic filter, and the share that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// The name between `$share/` and the filter.
    pub share: Option<&'a str>,
    /// The filter itself.
    pub filter: &'a str,
}

impl<'a> Filter<'a> {
    /// Reads the filter of a SUBSCRIBE or UNSUBSCRIBE; `None` if it is not well-formed.
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

    /// Whether a message to this topic is one for this filter.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        matches(self.filter, topic)
    }
}

/// Whether a message to `topic` is one for `filter`, without a share. A wildcard at the beginning does not match topics that
/// begin with `$`.
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

/// Whether `filter` matches every topic that `other` does; both are filters without a share.
///
/// It may say no where only several levels together would say yes: `+/#` matches what `#` does.
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
