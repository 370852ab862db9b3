local held = call('GET', lock) -- "<token> <fence>"; false if nobody holds it
