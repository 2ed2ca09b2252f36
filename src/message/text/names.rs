//! The names that a template asks for: found in its syntax tree when it is read, and answered by one object when it is
//! rendered. A name that was not found is an error there, never an empty value.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use minijinja::machinery::ast::{CallArg, Expr, ForLoop, Stmt};
use minijinja::value::{Object, Value};
use minijinja::{Error, ErrorKind};

/// A part of a template that a caller of [`find`] may refuse.
pub enum TemplatePart<'t> {
    Loop(&'t ForLoop<'t>),
    Expression(&'t Expr<'t>),
}

/// Returns the names in `tree` that are not its own variables, such as `name` and `params.city`, in all branches.
/// `check` sees every loop and every expression, the outer ones first.
pub fn find<'t>(
    tree: &'t Stmt<'t>,
    check: &mut dyn FnMut(TemplatePart<'t>) -> Result<(), String>,
) -> Result<BTreeSet<String>, String> {
    let mut finder = Finder { scopes: Vec::new(), names: BTreeSet::new(), check };
    match tree {
        Stmt::Template(template) => finder.block(&[], &template.children)?,
        statement => finder.block(&[], std::slice::from_ref(statement))?,
    }
    Ok(finder.names)
}

struct Finder<'t, 'c> {
    /// The variables of the enclosing blocks.
    scopes: Vec<Vec<&'t str>>,
    names: BTreeSet<String>,
    check: &'c mut dyn FnMut(TemplatePart<'t>) -> Result<(), String>,
}

impl<'t> Finder<'t, '_> {
    /// Variables of a block are its own, also those of `{% set %}`: after the block they may not be set.
    fn block(&mut self, variables: &[&'t str], statements: &'t [Stmt<'t>]) -> Result<(), String> {
        self.scopes.push(variables.to_vec());
        for statement in statements {
            self.statement(statement)?;
        }
        self.scopes.pop();
        Ok(())
    }

    fn statement(&mut self, statement: &'t Stmt<'t>) -> Result<(), String> {
        match statement {
            Stmt::EmitRaw(_) => Ok(()),
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr)?;
                self.block(&[], &condition.true_body)?;
                self.block(&[], &condition.false_body)
            }
            Stmt::ForLoop(each) => self.each(each),
            Stmt::Set(set) => {
                self.expression(&set.expr)?;
                let variables = self.variables(&set.target)?;
                self.scopes.last_mut().into_iter().for_each(|scope| scope.extend(&variables));
                Ok(())
            }
            _ => Err("the only statements here are `if`, `for`, `set` and `raw`".to_owned()),
        }
    }

    fn each(&mut self, each: &'t ForLoop<'t>) -> Result<(), String> {
        (self.check)(TemplatePart::Loop(each))?;
        self.expression(&each.iter)?;
        let mut variables = self.variables(&each.target)?;
        if let Some(filter) = &each.filter_expr {
            // The filter does not have `loop`.
            self.scopes.push(variables.clone());
            self.expression(filter)?;
            self.scopes.pop();
        }
        variables.push("loop");
        self.block(&variables, &each.body)?;
        self.block(&[], &each.else_body)
    }

    /// The variables that an assignment to `target` sets.
    fn variables(&mut self, target: &'t Expr<'t>) -> Result<Vec<&'t str>, String> {
        let items = match target {
            Expr::Var(variable) => return Ok(vec![variable.id]),
            Expr::List(list) => &list.items,
            Expr::Tuple(tuple) => &tuple.items,
            other => {
                self.expression(other)?;
                return Ok(Vec::new());
            }
        };
        let mut variables = Vec::new();
        for item in items {
            variables.extend(self.variables(item)?);
        }
        Ok(variables)
    }

    fn expression(&mut self, expression: &'t Expr<'t>) -> Result<(), String> {
        (self.check)(TemplatePart::Expression(expression))?;
        if let Some(name) = self.name(expression) {
            self.names.insert(name);
            return Ok(());
        }
        operands(expression).into_iter().try_for_each(|operand| self.expression(operand))
    }

    /// `a`, `a.b` or `a["b"]`, where `a` is not a variable of the template.
    fn name(&self, expression: &Expr<'_>) -> Option<String> {
        let part_of = |whole: &Expr<'_>, part: &str| Some(format!("{}.{part}", self.name(whole)?));
        match expression {
            Expr::Var(name) => {
                let is_variable = self.scopes.iter().flatten().any(|known| *known == name.id);
                (!is_variable).then(|| name.id.to_owned())
            }
            Expr::GetAttr(part) => part_of(&part.expr, part.name),
            Expr::GetItem(item) => match &item.subscript_expr {
                Expr::Const(key) => part_of(&item.expr, key.value.as_str()?),
                _ => None,
            },
            _ => None,
        }
    }
}

/// The expressions that an expression is made of.
fn operands<'t>(expression: &'t Expr<'t>) -> Vec<&'t Expr<'t>> {
    match expression {
        Expr::Var(_) | Expr::Const(_) => Vec::new(),
        Expr::Slice(slice) => [Some(&slice.expr), slice.start.as_ref()]
            .into_iter()
            .chain([slice.stop.as_ref(), slice.step.as_ref()])
            .flatten()
            .collect(),
        Expr::UnaryOp(operation) => vec![&operation.expr],
        Expr::BinOp(operation) => vec![&operation.left, &operation.right],
        Expr::Compare(comparison) => [&comparison.expr]
            .into_iter()
            .chain(comparison.ops.iter().map(|operation| &operation.expr))
            .collect(),
        Expr::IfExpr(choice) => {
            [&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr).collect()
        }
        Expr::Filter(filter) => {
            filter.expr.iter().chain(filter.args.iter().map(argument)).collect()
        }
        Expr::Test(test) => {
            [&test.expr].into_iter().chain(test.args.iter().map(argument)).collect()
        }
        Expr::GetAttr(part) => vec![&part.expr],
        Expr::GetItem(item) => vec![&item.expr, &item.subscript_expr],
        Expr::Call(call) => {
            [&call.expr].into_iter().chain(call.args.iter().map(argument)).collect()
        }
        Expr::List(list) => list.items.iter().collect(),
        Expr::Tuple(tuple) => tuple.items.iter().collect(),
        Expr::Map(map) => map.keys.iter().chain(&map.values).collect(),
    }
}

fn argument<'t>(argument: &'t CallArg<'t>) -> &'t Expr<'t> {
    match argument {
        CallArg::Pos(value)
        | CallArg::Kwarg(_, value)
        | CallArg::PosSplat(value)
        | CallArg::KwargSplat(value) => value,
    }
}

/// The names that a template may ask for, each with its value if it has one.
pub struct Namespace<N>(BTreeMap<N, Option<Value>>);

impl<N: Ord> FromIterator<(N, Option<Value>)> for Namespace<N> {
    fn from_iter<I: IntoIterator<Item = (N, Option<Value>)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<N: Borrow<str> + Ord + Send + Sync + 'static> Object for Namespace<N> {
    fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
        self.get_value_by_str(name.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, name: &str) -> Option<Value> {
        self.0.get(name).cloned().unwrap_or_else(|| {
            let detail = format!("`{name}` is used, and was not found when the text was read");
            Some(Error::new(ErrorKind::InvalidOperation, detail).into())
        })
    }
}

/// Leaves out the values, which may be personal data.
impl<N> fmt::Debug for Namespace<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespace").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Mutex;

    use minijinja::machinery::parse;
    use minijinja::syntax::SyntaxConfig;
    use minijinja::{Environment, UndefinedBehavior};
    use proptest::prelude::*;

    use super::*;

    fn names(source: &str) -> BTreeSet<String> {
        let tree = parse(source, "", SyntaxConfig::default());
        let tree = tree.unwrap_or_else(|error| panic!("{source}: {error}"));
        find(&tree, &mut |_| Ok(())).unwrap_or_else(|problem| panic!("{source}: {problem}"))
    }

    #[test]
    fn names_are_found_in_every_place() {
        for (source, expected) in [
            ("{{ a[:2] }}", "a"),
            ("{{ 'x'[a:b:c] }}", "a b c"),
            ("{{ a[b] }}{{ a[0] }}", "a b"),
            ("{{ a.b }}{{ a['c d'] }}", "a.b a.c d"),
            ("{{ a.b[:2] }}{{ a.b[1:].c }}", "a.b"),
            ("{{ a | join(b[:1], d=c) }}", "a b c"),
            ("{{ a is eq(b) }}{{ c is eq d[:1] }}", "a b c d"),
            ("{{ a if b[:1] else c }}{{ d if e }}", "a b c d e"),
            ("{{ a < b[:1] < c }}{{ not d and -e }}", "a b c d e"),
            ("{{ [a, (b, c)] }}{{ {d: e} }}{{ f(g) }}", "a b c d e f g"),
            ("{% if a %}{{ b }}{% elif c %}{{ d[:1] }}{% else %}{{ e }}{% endif %}", "a b c d e"),
            (
                "{% for x in a[:2] if x > b[1:] %}{{ x[:c] }}{% else %}{{ d }}{% endfor %}",
                "a b c d",
            ),
            // The list of a loop is outside of it.
            ("{% for x in loop %}{{ loop.index }}{% endfor %}", "loop"),
            ("{% for x in x %}{{ loop.index }}{% endfor %}{{ loop }}", "loop x"),
            ("{% for x in a if loop %}{% endfor %}{{ self }}", "a loop self"),
            ("{% set x = x %}{{ x }}{% set (y, z) = a %}{{ y[:z] }}", "a x"),
            // Perhaps not set.
            ("{% if a %}{% set x = 1 %}{{ x }}{% endif %}", "a"),
            ("{% if a %}{% set x = 1 %}{% endif %}{{ x }}", "a x"),
            ("{% raw %}{{ a }}{% endraw %}{# {{ b }} #}", ""),
        ] {
            let found: Vec<String> = names(source).into_iter().collect();
            assert_eq!(found.join(" "), expected, "{source}");
        }
    }

    #[test]
    fn other_statements_are_refused() {
        for source in [
            "{% macro f() %}{{ a[:1] }}{% endmacro %}",
            "{% with a = b %}{% endwith %}",
            "{% set a | upper %}{{ b }}{% endset %}",
            "{% if a %}{% filter replace(b, c) %}{% endfilter %}{% endif %}",
            "{% autoescape a %}{% endautoescape %}",
            "{% include a %}",
        ] {
            let tree = parse(source, "", SyntaxConfig::default()).expect(source);
            let problem = find(&tree, &mut |_| Ok(())).expect_err(source);
            assert!(problem.starts_with("the only statements here are"), "{source}");
        }
    }

    #[test]
    fn name_that_was_not_found_fails_wherever_it_is() {
        let environment = Environment::new();
        for source in [
            "{{ b }}",
            "{{ b[:2] }}",
            "{{ b | default('x') }}",
            "{{ 1 if b else 2 }}",
            "{{ b is defined }}",
            "{% for x in b %}{% endfor %}",
            "{% for x in [1] %}{{ range }}{% endfor %}",
        ] {
            let given = Namespace::from_iter([("a", Some(Value::from("1"))), ("c", None)]);
            let rendered = environment.render_str(source, Value::from_object(given));
            let error = rendered.expect_err(source).to_string();
            assert!(error.contains("was not found when the text was read"), "{source}: {error}");
        }
        let given = Namespace::from_iter([("a", Some(Value::from("1"))), ("c", None)]);
        let rendered =
            environment.render_str("{{ a }}{{ c | default(2) }}", Value::from_object(given));
        assert_eq!(rendered.expect("a text"), "12");
    }

    /// Has some of the columns, and keeps what is asked for.
    #[derive(Debug, Default)]
    struct AskedNames(Mutex<BTreeSet<String>>);

    impl Object for AskedNames {
        fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
            let name = name.as_str()?;
            self.0.lock().expect("not poisoned").insert(name.to_owned());
            ["a", "c", "v"].contains(&name).then(|| Value::from("tea"))
        }
    }

    /// Expressions over columns and variables, whose names are partly the same.
    pub(in crate::text) fn expression() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            4 => "[a-dv-x]",
            1 => Just("loop".to_owned()),
            1 => prop_oneof![Just("0".to_owned()), Just("2".to_owned()), Just("'te'".to_owned())],
        ];
        leaf.prop_recursive(4, 32, 3, |inner| {
            let forms = prop::sample::select(vec![
                "(A)[B:]",
                "(A)[:B]",
                "(A)[A:B]",
                "(A)[:1:1]",
                "(A)[B]",
                "(A).part",
                "(A)['part']",
                "(A | default(B))",
                "(A | replace(B, C))",
                "(A | split(B))",
                "(A | join(d=B))",
                "(A if B else C)",
                "(A if B)",
                "(A and B)",
                "(A or B)",
                "(not A)",
                "(-A)",
                "(A ~ B)",
                "(A + B)",
                "(A == B)",
                "(A < B < C)",
                "(A in B)",
                "(A not in B)",
                "(A is defined)",
                "(A is startingwith(B))",
                "(A is eq(B))",
                "(A is eq a[:B])",
                "[A, B]",
                "(A, B)",
                "{A: B}",
            ]);
            (forms, inner.clone(), inner.clone(), inner)
                .prop_map(|(form, a, b, c)| filled(form, &[&a, &b, &c]))
        })
    }

    /// `A`, `B` and so on are replaced by these parts, in one pass.
    fn filled(form: &str, parts: &[&str]) -> String {
        let part = |letter: char| parts.get((letter as usize).wrapping_sub('A' as usize));
        let piece = |letter: char| {
            part(letter).map_or_else(|| letter.to_string(), |part| (*part).to_owned())
        };
        form.chars().map(piece).collect()
    }

    fn statements() -> impl Strategy<Value = String> {
        let leaf = expression().prop_map(|expression| format!("{{{{ {expression} }}}}"));
        leaf.prop_recursive(3, 16, 3, |inner| {
            let forms = prop::sample::select(vec![
                "C D",
                "{% if A %}C{% elif B %}D{% else %}C{% endif %}D",
                "{% set v = A %}C",
                "{% set (v, w) = A %}C",
                "{% if A %}{% set w = B %}C{% endif %}D",
                "{% for v in A if B %}C{% else %}D{% endfor %}",
                "{% for x in A %}C{% endfor %}D",
                "{% for v in [A, B] %}C{% set x = v %}D{% endfor %}{{ x }}",
            ]);
            (forms, expression(), expression(), inner.clone(), inner)
                .prop_map(|(form, a, b, c, d)| filled(form, &[&a, &b, &c, &d]))
        })
    }

    proptest! {
        #[test]
        fn what_is_asked_for_was_found(source in statements()) {
            let mut environment = Environment::new();
            environment.set_undefined_behavior(UndefinedBehavior::Chainable);
            environment.set_fuel(Some(20_000));
            // Its errors look up all names.
            environment.set_debug(false);
            let found = names(&source);
            let asked = Arc::new(AskedNames::default());
            // It may fail, as other values would not.
            let _ = environment.render_str(&source, Value::from_dyn_object(Arc::clone(&asked)));
            let roots: BTreeSet<&str> = found.iter().filter_map(|name| name.split('.').next()).collect();
            for name in asked.0.lock().expect("not poisoned").iter() {
                prop_assert!(roots.contains(name.as_str()), "{source}: {name} is not among {found:?}");
            }
        }
    }
}
