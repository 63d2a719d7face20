//! Mistakes put into the scripts on purpose, to see that the tests find them.

/// Replaces one text by another.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    pub from: &'static str,
    pub to: &'static str,
}

impl Mutation {
    pub fn apply(self, text: String) -> String {
        text.replace(self.from, self.to)
    }
}
