//! Permissions of clients: the rules for every client, and the policy in force.

pub(crate) mod fixed_rules;
pub(crate) mod shared_policy;
