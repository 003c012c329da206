//! The types that a source line names for its allocation: `sizeof`, `new`, a cast, the pointer that is
//! assigned to. C and C++, as text: no preprocessor, no types.
//!
//! Only statements with a part on the line are read, in a window of `LINES_BEFORE` and `LINES_BEHIND`
//! lines; a statement that is not understood names nothing.

use crate::symbols::types::{Step, Tag, TypeExpression};

pub const LINES_BEFORE: usize = 6;
pub const LINES_BEHIND: usize = 12;
/// Longer lines are generated code, which is not read.
const MOST_LINE_BYTES: usize = 4096;

/// A type that a statement may allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub expression: TypeExpression,
    /// Whether the block has one of it and nothing else.
    pub single: bool,
}

/// The types in the statements on this line (counted from 1) of a source; several if the statements are
/// ambiguous.
pub fn mentions(source: &str, line: usize) -> Vec<Mention> {
    let first = line.saturating_sub(LINES_BEFORE).max(1);
    let lines = source.lines().enumerate().skip(first - 1);
    let window: Vec<(usize, &str)> = lines
        .take(LINES_BEFORE + 1 + LINES_BEHIND)
        .map(|(index, text)| (index + 1, text))
        .collect();
    if window.iter().any(|(_, text)| text.len() > MOST_LINE_BYTES) {
        return Vec::new();
    }
    let tokens = tokens(&window);
    let ends = |token: &Token<'_>| matches!(token.text, ";" | "{" | "}");
    let statements = tokens.split(ends);
    let mut found: Vec<Mention> = statements
        .filter(|tokens| tokens.iter().any(|token| token.line == line))
        .flat_map(|tokens| {
            let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
            of_statement(&texts)
        })
        .collect();
    let mut seen = Vec::new();
    found.retain(|mention| {
        let new = !seen.contains(mention);
        seen.push(mention.clone());
        new
    });
    found
}

#[derive(Clone, Copy, Debug)]
struct Token<'s> {
    text: &'s str,
    line: usize,
}

/// Words, numbers and signs, without comments, strings and directives.
fn tokens<'s>(lines: &[(usize, &'s str)]) -> Vec<Token<'s>> {
    let mut tokens = Vec::new();
    let (mut in_comment, mut in_directive) = (false, false);
    for (line, text) in lines {
        let directive = in_directive || (!in_comment && text.trim_start().starts_with('#'));
        in_directive = directive && text.ends_with('\\');
        if directive {
            continue;
        }
        let mut rest = *text;
        while !rest.is_empty() {
            if in_comment {
                let Some(end) = rest.find("*/") else { break };
                (in_comment, rest) = (false, &rest[end + 2..]);
                continue;
            }
            if rest.starts_with("//") {
                break;
            }
            if rest.starts_with("/*") {
                (in_comment, rest) = (true, &rest[2..]);
                continue;
            }
            let length = token_length(rest);
            let (token, behind) = rest.split_at(length);
            if !token.trim().is_empty() {
                tokens.push(Token {
                    text: token,
                    line: *line,
                });
            }
            rest = behind;
        }
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the first token of a text, which is not empty.
fn token_length(text: &str) -> usize {
    const SIGNS: &[&str] = &["->", "::", "==", "!=", "<=", ">=", "&&", "||", "++", "--"];
    let first = text.chars().next().map_or(1, char::len_utf8);
    if let Some(sign) = SIGNS.iter().find(|sign| text.starts_with(**sign)) {
        return sign.len();
    }
    if text.starts_with(is_word) {
        return text.find(|c| !is_word(c)).unwrap_or(text.len());
    }
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        return first;
    };
    let mut escaped = false;
    let end = text[1..].char_indices().find(|(_, c)| {
        let end = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        end
    });
    end.map_or(text.len(), |(at, _)| at + 2)
}

fn of_statement(tokens: &[&str]) -> Vec<Mention> {
    let by_new = of_new(tokens);
    if !by_new.is_empty() {
        return by_new;
    }
    let calls: Vec<Call<'_>> = (0..tokens.len())
        .filter_map(|at| Call::at(tokens, at))
        .collect();
    let mut found: Vec<Mention> = calls.iter().filter_map(Call::by_first_type).collect();
    for call in &calls {
        found.extend(call.by_sizeof());
    }
    let says_size = calls.iter().any(|call| call.arguments.contains(&"sizeof"));
    if found.is_empty() && !says_size {
        found = calls
            .iter()
            .filter_map(|call| call.by_use(tokens))
            .collect();
    }
    found
}

/// A call of a function with the name of an allocation function.
struct Call<'t> {
    name: &'t str,
    /// The index of the name.
    at: usize,
    arguments: &'t [&'t str],
}

impl<'t> Call<'t> {
    fn at(tokens: &'t [&'t str], at: usize) -> Option<Self> {
        let name = *tokens.get(at)?;
        let lower = name.to_ascii_lowercase();
        let allocates = ["alloc", "new"].iter().any(|word| lower.contains(word));
        (allocates && name != "new" && tokens.get(at + 1) == Some(&"(")).then(|| Self {
            name,
            at,
            arguments: inside(&tokens[at + 1..]),
        })
    }

    /// GLib's `g_new(T, n)` and its like.
    fn by_first_type(&self) -> Option<Mention> {
        const SINGLE: &[&str] = &["g_slice_new", "g_slice_new0"];
        const SEVERAL: &[&str] = &["g_new", "g_new0", "g_renew", "g_try_new", "g_try_new0"];
        let known = SINGLE.contains(&self.name) || SEVERAL.contains(&self.name);
        let first = self.arguments.split(|token| *token == ",").next()?;
        Some(Mention {
            expression: type_expression(first).filter(|_| known)?,
            single: SINGLE.contains(&self.name),
        })
    }

    /// The type whose sizes are in its arguments; none if there are several.
    fn by_sizeof(&self) -> Option<Mention> {
        let mut operands = Vec::new();
        let mut computed = false;
        for argument in split_arguments(self.arguments) {
            let places = argument.iter().enumerate();
            let mut places = places.filter(|(_, token)| **token == "sizeof").peekable();
            if places.peek().is_some() {
                computed |= is_computed(argument);
            }
            for (at, _) in places {
                operands.push(operand(&argument[at + 1..]));
            }
        }
        let expression = operands.first()?.clone()?;
        let same = operands
            .iter()
            .all(|other| other.as_ref() == Some(&expression));
        same.then_some(Mention {
            expression,
            single: computed,
        })
    }

    /// The type to which the result is cast or assigned. Its size may not be that of one element, so it
    /// counts only if there is one type.
    fn by_use(&self, tokens: &[&str]) -> Option<Mention> {
        let before = &tokens[..self.at];
        let expression = match before.last() {
            Some(&")") => {
                let open = opening(before)?;
                let cast = type_expression(&before[open + 1..before.len() - 1])?;
                pointee(cast)?
            }
            Some(&"=") => assigned(&before[..before.len() - 1])?,
            _ => return None,
        };
        Some(Mention {
            expression,
            single: true,
        })
    }
}

/// `new T`, `new (std::nothrow) T[n]`.
fn of_new(tokens: &[&str]) -> Vec<Mention> {
    let places = tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| **token == "new");
    places
        .filter_map(|(at, _)| {
            let mut rest = &tokens[at + 1..];
            if rest.first() == Some(&"(") {
                rest = &rest[(inside(rest).len() + 2).min(rest.len())..];
            }
            let mut depth = 0usize;
            let end = rest.iter().position(|token| {
                match *token {
                    "<" => depth += 1,
                    ">" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                depth == 0 && matches!(*token, "(" | "[" | "," | ")" | ":" | "?")
            });
            let end = end.unwrap_or(rest.len());
            Some(Mention {
                expression: type_expression(&rest[..end])?,
                single: rest.get(end) != Some(&"["),
            })
        })
        .collect()
}

/// The tokens between the first parenthesis and its counterpart; to the end if that is missing.
fn inside<'a, 's>(tokens: &'a [&'s str]) -> &'a [&'s str] {
    let mut depth = 0usize;
    let end = tokens.iter().position(|token| {
        match *token {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    tokens
        .get(1..end.unwrap_or(tokens.len()))
        .unwrap_or_default()
}

/// The index of the counterpart of the last parenthesis.
fn opening(tokens: &[&str]) -> Option<usize> {
    let mut depth = 0usize;
    tokens.iter().rposition(|token| {
        match *token {
            ")" | "]" => depth += 1,
            "(" | "[" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// The arguments of a call, at the commas outside of inner parentheses.
fn split_arguments<'a, 's>(tokens: &'a [&'s str]) -> Vec<&'a [&'s str]> {
    let mut depth = 0usize;
    let split = tokens.split(|token| {
        match *token {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && *token == ","
    });
    split.collect()
}

/// Whether an argument with a `sizeof` is not just a product: it has a sum, or the call of a function
/// or macro.
fn is_computed(argument: &[&str]) -> bool {
    // For each open parenthesis, whether it is a call's.
    let mut calls: Vec<bool> = Vec::new();
    let mut before = "";
    argument.iter().any(|token| {
        match *token {
            "(" | "[" => calls.push(before != "sizeof" && before.ends_with(is_word)),
            ")" | "]" => {
                calls.pop();
            }
            _ => {}
        }
        before = token;
        match *token {
            "sizeof" => calls.contains(&true),
            "+" | "-" | "?" | "/" | "|" | "&" | "%" | "^" | "<" | ">" => calls.is_empty(),
            _ => false,
        }
    })
}

/// The operand of a `sizeof` before these tokens.
fn operand(tokens: &[&str]) -> Option<TypeExpression> {
    if tokens.first() != Some(&"(") {
        return value(tokens).map(|(expression, _)| expression);
    }
    let inner = inside(tokens);
    let whole =
        |(expression, rest): (TypeExpression, &[&str])| rest.is_empty().then_some(expression);
    // A single word may be either; `of_expression` tries both.
    type_expression(inner).or_else(|| value(inner).and_then(whole))
}

/// `struct foo`, `foo_t *`, `unsigned int`, `const ns::Foo`.
fn type_expression(tokens: &[&str]) -> Option<TypeExpression> {
    let mut tag = None;
    let (mut name, mut pointers) = (String::new(), 0);
    for token in tokens {
        match *token {
            "const" | "volatile" | "restrict" | "class" | "register" | "static" => {}
            "struct" | "union" | "enum" if name.is_empty() && tag.is_none() => {
                tag = Some(match *token {
                    "struct" => Tag::Struct,
                    "union" => Tag::Union,
                    _ => Tag::Enum,
                });
            }
            "*" if !name.is_empty() => pointers += 1,
            _ if pointers > 0 => return None,
            word if word.starts_with(is_word) => {
                if name.ends_with(is_word) {
                    name.push(' ');
                }
                name.push_str(word);
            }
            "::" | "<" | ">" | "," => name.push_str(token),
            _ => return None,
        }
    }
    let starts_well = name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == ':');
    starts_well.then_some(TypeExpression::Type {
        tag,
        name,
        pointers,
    })
}

fn pointee(pointer: TypeExpression) -> Option<TypeExpression> {
    match pointer {
        TypeExpression::Type {
            tag,
            name,
            pointers,
        } if pointers > 0 && name != "void" => Some(TypeExpression::Type {
            tag,
            name,
            pointers: pointers - 1,
        }),
        _ => None,
    }
}

/// The value at the start of tokens, `*p->next[0].items`, and the rest.
fn value<'a, 's>(tokens: &'a [&'s str]) -> Option<(TypeExpression, &'a [&'s str])> {
    let stars = tokens.iter().take_while(|token| **token == "*").count();
    let mut rest = &tokens[stars..];
    let (variable, mut steps) = match rest.first() {
        Some(&"(") => {
            let inner = inside(rest);
            rest = rest.get(inner.len() + 2..).unwrap_or_default();
            // A parenthesis around a parenthesis is not worth its recursion.
            let deep = inner.iter().filter(|token| **token == "(").count() > 0;
            match (!deep).then(|| value(inner))?? {
                (TypeExpression::Value { variable, steps }, []) => (variable, steps),
                _ => return None,
            }
        }
        Some(word) if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
            rest = &rest[1..];
            ((*word).to_owned(), Vec::new())
        }
        _ => return None,
    };
    loop {
        match rest {
            ["->" | ".", member, behind @ ..] if member.starts_with(is_word) => {
                steps.push(Step::Member((*member).to_owned()));
                rest = behind;
            }
            ["[", behind @ ..] => {
                let mut depth = 1usize;
                let end = behind.iter().position(|token| {
                    match *token {
                        "[" => depth += 1,
                        "]" => depth -= 1,
                        _ => {}
                    }
                    depth == 0
                })?;
                steps.push(Step::Element);
                rest = &behind[end + 1..];
            }
            _ => break,
        }
    }
    steps.extend(std::iter::repeat_n(Step::Element, stars));
    Some((TypeExpression::Value { variable, steps }, rest))
}

/// The target of the pointer at the end of tokens, which is assigned to.
fn assigned(before: &[&str]) -> Option<TypeExpression> {
    let mut start = before.len();
    loop {
        let at = start.checked_sub(1)?;
        match *before.get(at)? {
            "]" => {
                start = opening(&before[..start])?;
                continue;
            }
            word if word.starts_with(is_word) => start = at,
            _ => return None,
        }
        match start
            .checked_sub(1)
            .and_then(|before_it| before.get(before_it))
        {
            Some(&"->" | &".") => start -= 1,
            _ => break,
        }
    }
    // A star after a type's name declares a pointer; any other dereferences one.
    let mut stars = before[..start]
        .iter()
        .rev()
        .take_while(|token| **token == "*")
        .count();
    let behind_type = start.checked_sub(stars + 1).and_then(|at| before.get(at));
    if behind_type.is_some_and(|token| token.starts_with(is_word)) {
        stars = 0;
    }
    match value(&before[start - stars..])? {
        (
            TypeExpression::Value {
                variable,
                mut steps,
            },
            [],
        ) => {
            steps.push(Step::Element);
            Some(TypeExpression::Value { variable, steps })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In short: `T name`, `T struct name*`, `V name.member[]`; `!`: single.
    fn short(source: &str) -> Vec<String> {
        let found = mentions(source, 1).into_iter();
        let text = |mention: Mention| {
            let single = if mention.single { "!" } else { "" };
            match mention.expression {
                TypeExpression::Type {
                    tag,
                    name,
                    pointers,
                } => {
                    let tag = tag.map_or(String::new(), |tag| format!("{tag:?} ").to_lowercase());
                    format!("T {tag}{name}{}{single}", "*".repeat(pointers))
                }
                TypeExpression::Value { variable, steps } => {
                    let steps = steps.iter().map(|step| match step {
                        Step::Member(name) => format!(".{name}"),
                        Step::Element => "[]".to_owned(),
                    });
                    format!("V {variable}{}{single}", steps.collect::<String>())
                }
            }
        };
        found.map(text).collect()
    }

    #[test]
    fn the_operand_of_sizeof() {
        assert_eq!(short("p = malloc(sizeof(struct foo));"), ["T struct foo"]);
        assert_eq!(short("p = malloc(sizeof(foo_t) * n);"), ["T foo_t"]);
        assert_eq!(short("p = calloc(n + 1, sizeof(foo_t *));"), ["T foo_t*"]);
        assert_eq!(short("if ((p = malloc(sizeof(*p))) == NULL) {"), ["V p[]"]);
        assert_eq!(short("p = xmalloc(sizeof *p);"), ["V p[]"]);
        assert_eq!(
            short("x = curlx_calloc(1, sizeof(*a->b[i].c));"),
            ["V a.b[].c[]"]
        );
        assert_eq!(short("q = realloc(q, (n + 1) * sizeof(q[0]));"), ["V q[]"]);
        assert_eq!(short("p = malloc(sizeof(**(pp)));"), ["V pp[][]"]);
        assert_eq!(
            short("p = malloc(sizeof(unsigned long) * 2);"),
            ["T unsigned long"]
        );
    }

    #[test]
    fn what_is_no_product_is_no_row_of_elements() {
        assert_eq!(short("p = malloc(ROUND8(sizeof(T)) * n);"), ["T T!"]);
        assert_eq!(short("p = malloc((size_t)(n + 1) * sizeof(T));"), ["T T"]);
        assert_eq!(short("p = malloc(strlen(s) * (sizeof(T)));"), ["T T"]);
        assert_eq!(short("p = malloc(sizeof(struct h) + n);"), ["T struct h!"]);
        assert_eq!(
            short("p = malloc(sizeof(struct h) + sizeof(struct b));"),
            [""; 0]
        );
    }

    #[test]
    fn what_is_made_by_new() {
        assert_eq!(short("p = new Foo(1);"), ["T Foo!"]);
        assert_eq!(
            short("auto p = new ns::Foo<int, 3>{1};"),
            ["T ns::Foo<int,3>!"]
        );
        assert_eq!(short("p = new (std::nothrow) Foo[n];"), ["T Foo"]);
        assert_eq!(short("f(new A, new B);"), ["T A!", "T B!"]);
        assert_eq!(short("p = new Foo*[n];"), ["T Foo*"]);
    }

    #[test]
    fn what_it_is_cast_or_assigned_to() {
        assert_eq!(short("p = (struct foo *)malloc(n);"), ["T struct foo!"]);
        assert_eq!(short("struct foo *p = malloc(n);"), ["V p[]!"]);
        assert_eq!(short("*out = malloc(n);"), ["V out[][]!"]);
        assert_eq!(short("a->list[i] = my_alloc(n + 8);"), ["V a.list[][]!"]);
        assert_eq!(short("p = (void *)malloc(n);"), [""; 0]);
        assert_eq!(short("return malloc(n);"), [""; 0]);
        assert_eq!(short("g = g_new0 (GFoo, 3);"), ["T GFoo"]);
    }

    #[test]
    fn only_the_statement_of_the_line_counts() {
        let source = "a = malloc(sizeof(A));\nb = malloc(\n  sizeof(B) /* not sizeof(C) */);\n\
                      // sizeof(D)\nputs(\"malloc(sizeof(E))\");\n#define F malloc(sizeof(F))\n";
        let name = |line| {
            let found = mentions(source, line).into_iter();
            let found = found.map(|mention| match mention.expression {
                TypeExpression::Type { name, .. } => name,
                TypeExpression::Value { variable, .. } => variable,
            });
            found.collect::<Vec<_>>()
        };
        assert_eq!(name(1), ["A"]);
        assert_eq!(name(2), ["B"]);
        assert_eq!(name(3), ["B"]);
        for line in [0, 4, 5, 6, 7, usize::MAX] {
            assert_eq!(name(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn any_text_is_taken() {
        let mut random = fastrand::Rng::with_seed(1);
        let parts = [
            "malloc", "(", ")", "sizeof", "*", "p", "->", "[", "]", "=", "new", "struct", "<", ">",
            ",", "\"", "'", "/*", "*/", "//", "é", "\\", " ", "+", "::", "g_new", ";",
        ];
        for _ in 0..20_000 {
            let text: String = (0..random.usize(..30))
                .map(|_| parts[random.usize(..parts.len())])
                .collect();
            mentions(&text, 1);
        }
    }
}
