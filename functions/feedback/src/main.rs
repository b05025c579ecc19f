//! Under way.

fn main() {}
